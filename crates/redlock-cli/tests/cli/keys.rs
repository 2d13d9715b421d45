//! KEYs of any bytes, in the objects of `--json`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use redlock_testkit::RedisServers;
use serde_json::{Value, json};

use crate::support::{answer_of, ask, redlock};

/// Every object that has a KEY shows which one: `x`, a newline, `y` is not `x\ny`.
#[test]
fn every_object_shows_the_bytes_of_its_key() {
    let servers = RedisServers::start(1).unwrap();
    let key = |bytes: &'static [u8]| OsStr::from_bytes(bytes);
    for (bytes, text, encoded) in [
        (&b"x\ny"[..], json!("x\ny"), json!(null)),
        (br"x\ny", json!(r"x\ny"), json!(null)),
        ("h\u{e9}".as_bytes(), json!("h\u{e9}"), json!(null)),
        (b"x\xff=y", json!(null), json!("x%FF%3Dy")),
    ] {
        let run = |words: &[&str], rest: &[&str]| {
            let mut command = redlock(&servers, []);
            command.args(words).arg("--json").arg(key(bytes)).args(rest);
            answer_of(&mut command).json()
        };
        let shows = |object: &Value, field: &str| {
            assert_eq!((&object["key"], &object["key_encoded"]), (&text, &encoded), "{object}");
            assert_eq!(object.get("key_encoded").is_some(), text.is_null(), "{object}");
            assert!(object.get(field).is_some(), "{object}");
        };
        let acquired = run(&["acquire"], &[]);
        shows(&acquired, "validity_ms");
        let token = acquired["token"].as_str().unwrap();
        shows(&run(&["status"], &[]), "state");
        let listing = |list: &str| ask(&servers, ["status", "--json"]).json()[list][0].clone();
        shows(&listing("locks"), "since_ms");
        shows(&run(&["extend"], &[token]), "fencing_token");
        shows(&run(&["release"], &[token]), "released");
        run(&["acquire"], &[]);
        shows(&run(&["release", "--force", "--yes"], &[]), "deleted");
        let mut once = redlock(&servers, ["run"]);
        once.arg(key(bytes)).args(["--fire", "7", "--", "true"]);
        answer_of(&mut once).success();
        shows(&listing("done"), "fire");
        shows(&run(&["release", "--force", "--mark", "--yes"], &[]), "deleted");
        shows(&run(&["release", "--force", "--mark", "--yes"], &[]), "deleted");
        shows(&run(&["release", "--force", "--yes"], &[]), "deleted");
    }
}

//! Servers that reject the log-in, each for another reason.

use redlock_testkit::{RedisServers, ServerOptions};

use crate::hostile::fake;
use crate::support::{answer_of, bare};

/// Returns the error that `doctor` reports about the master of this URL, and the fix.
fn error_and_fix(url: &str) -> [String; 2] {
    let answer = answer_of(bare(["doctor", "--json"]).env("REDLOCK_NODES", url));
    assert_eq!(answer.code, 1, "{answer:?}");
    let findings = answer.json()["findings"].as_array().unwrap().clone();
    let of_node: Vec<_> = findings.iter().filter(|one| one["node"].is_string()).collect();
    assert_eq!(of_node.len(), 1, "{answer:?}");
    ["what", "fix"].map(|field| of_node[0][field].as_str().unwrap().to_owned())
}

#[test]
fn each_rejected_log_in_has_its_own_fix() {
    let locked = RedisServers::with(1, &ServerOptions::new().password("sesame")).unwrap();
    let open = RedisServers::start(1).unwrap();
    let (locked, open) = (locked[0].name(), open[0].name());
    for (url, error, fix) in [
        (format!("redis://{locked}"), "NOAUTH", "add a user and a password to its URL"),
        (format!("redis://:wrong@{locked}"), "WRONGPASS", "correct the user and the password"),
        (format!("redis://:x@{open}"), "ERR AUTH <password> called", "remove the password"),
        (format!("redis://{open}/2147483647"), "ERR DB index", "use a smaller number of the data"),
        (fake("-DENIED Redis is running in protected mode"), "DENIED", "set protected-mode no"),
    ] {
        let [said, advice] = error_and_fix(&url);
        assert!(said.starts_with(&format!("error reply: {error}")), "{url}: {said}");
        assert!(advice.contains(fix), "{url}: {advice}");
    }
}

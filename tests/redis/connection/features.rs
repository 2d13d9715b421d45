//! The commands and features of the server under test.

use redlock_quorum::commands::{EXTRAS, SENT};
use redlock_testkit::RedisServer;
use redlock_testkit::lab::{has_command, has_setting};

/// `scripts/test-servers.sh` reads this line.
#[test]
fn missing_features_are_printed_and_needed_commands_exist() {
    let server = RedisServer::start().unwrap();
    for sent in SENT {
        assert!(has_command(&server, &sent.name()), "{sent:?}");
    }
    let missing = EXTRAS.iter().filter(|extra| !has_command(&server, extra.command));
    let mut missing: Vec<_> = missing
        .map(|extra| format!("`{}`", extra.command.to_uppercase().replace('|', " ")))
        .collect();
    if !has_setting(&server, "tls-port") {
        missing.push("TLS".into());
    }
    println!("lacks: {}", missing.join(", "));
}

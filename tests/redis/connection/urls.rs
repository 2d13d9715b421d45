//! URLs whose passwords have characters that mean something in a URL.

use redlock_testkit::{RedisServers, ServerOptions};

use crate::lab::ordinary;

/// A password as a generator draws it.
const PASSWORD: &str = "p@ss/w?rd#1";

#[tokio::test]
async fn advised_encoding_of_a_password_works() {
    let servers = RedisServers::with(3, &ServerOptions::new().password(PASSWORD)).unwrap();
    let url = |server: &redlock_testkit::RedisServer, password: &str| {
        format!("redis://:{password}@127.0.0.1:{}", server.port())
    };
    let raw = servers.iter().map(|server| url(server, PASSWORD));
    let refused = ordinary(raw).build().unwrap_err().to_string();
    assert!(!refused.contains("rd#1") && !refused.contains("p@ss"), "{refused}");
    // "write / as %2F, ? as %3F, # as %23 and @ as %40"
    let advice: Vec<&str> = refused.split([' ', ',', ';']).collect();
    let pairs = advice.windows(3).filter(|words| words[1] == "as" && words[2].starts_with('%'));
    let pairs: Vec<(&str, &str)> = pairs.map(|words| (words[0], words[2])).collect();
    assert_eq!(pairs.len(), 4, "{refused}");
    let written =
        pairs.iter().fold(PASSWORD.to_owned(), |text, (sign, code)| text.replace(sign, code));
    let redlock = ordinary(servers.iter().map(|server| url(server, &written))).build().unwrap();
    redlock.lock("k").await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn password_with_an_at_sign_works_raw_and_encoded() {
    let servers = RedisServers::with(3, &ServerOptions::new().password("p@ss")).unwrap();
    for password in ["p@ss", "p%40ss"] {
        let url = |server: &redlock_testkit::RedisServer| {
            format!("redis://:{password}@127.0.0.1:{}", server.port())
        };
        let redlock = ordinary(servers.iter().map(url)).build().unwrap();
        redlock.lock("k").await.unwrap().release().await.unwrap();
    }
}

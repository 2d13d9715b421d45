//! Credentials apart from the URLs, which change while a handle is in use.

use std::sync::{Arc, Mutex};

use redlock_quorum::{Credentials, Redlock};
use redlock_testkit::{RedisServer, RedisServers};

use crate::lab::{masters, on_all, patient};

/// The user of the handle, with this password and no other.
fn set_password(servers: &RedisServers, password: &str) {
    for server in servers.iter() {
        let password = format!(">{password}");
        let user = ["ACL", "SETUSER", "rotates", "on", "resetpass", &password];
        server.command(&[&user[..], &["~*", "+@all"]].concat()).unwrap();
        // Servers before 6.2 have no rights to channels.
        let _ = server.command(&["ACL", "SETUSER", "rotates", "&*"]);
    }
}

fn end_connections(servers: &RedisServers) {
    let end = |server: &RedisServer| server.command(&["CLIENT", "KILL", "USER", "rotates"]);
    servers.iter().for_each(|server| drop(end(server).unwrap()));
}

#[tokio::test]
async fn rotated_credentials_are_used_for_the_next_connection() {
    let servers = masters();
    let password = Arc::new(Mutex::new("one".to_owned()));
    set_password(&servers, "one");
    let current = password.clone();
    let provide =
        move || Ok(Credentials::new(Some("rotates".into()), current.lock().unwrap().clone()));
    let redlock: Redlock = patient(servers.urls()).credentials(provide).build().unwrap();
    let guard = on_all(|| redlock.lock("a")).await;
    set_password(&servers, "two");
    "two".clone_into(&mut password.lock().unwrap());
    end_connections(&servers);
    on_all(|| redlock.lock("b")).await.release().await.unwrap();
    assert!(guard.is_held());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn credentials_of_a_url_precede_those_of_the_provider() {
    let servers = masters();
    set_password(&servers, "one");
    let urls = servers.urls().into_iter().map(|url| url.replace("://", "://rotates:one@"));
    let provide = || panic!("no master needs it");
    let redlock = patient(urls).credentials(provide).build().unwrap();
    redlock.lock("a").await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn unreadable_credentials_are_the_cause() {
    let servers = masters();
    let provide = || Err(std::io::Error::other("the vault is sealed"));
    let redlock = patient(servers.urls()).credentials(provide).build().unwrap();
    let refused = redlock.try_lock("a").await.unwrap_err().to_string();
    let why = "not connected: no credentials: the vault is sealed";
    assert!(refused.contains(why), "{refused}");
}

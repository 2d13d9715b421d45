//! Credentials that are not part of a URL, and the log-in of one connection.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::address::Login;
use super::beside::Beside;
use super::stream::not_connected;
use crate::Cause;

/// Fraction of the connect timeout that the provider may use. The rest distinguishes a provider
/// that hangs from a server that hangs.
const SHARE: f64 = 0.9;

/// A user name and a password. `Debug` shows neither.
#[derive(Clone)]
pub struct Credentials {
    username: Option<String>,
    password: String,
}

impl Credentials {
    /// Creates credentials. `None` as the user name means the default user of the server.
    pub fn new(username: Option<String>, password: String) -> Self {
        Self { username, password }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// Returns the credentials for a new connection. It may block.
#[derive(Clone)]
pub struct CredentialsProvider(Arc<dyn Fn() -> io::Result<Credentials> + Send + Sync>);

impl CredentialsProvider {
    /// Wraps the function that is called for each connection.
    pub fn new(provide: impl Fn() -> io::Result<Credentials> + Send + Sync + 'static) -> Self {
        Self(Arc::new(provide))
    }
}

impl fmt::Debug for CredentialsProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CredentialsProvider").finish_non_exhaustive()
    }
}

/// The log-ins of the connections to one master.
pub(super) struct Logins {
    of_url: Login,
    /// None if the URL has credentials.
    provider: Option<(CredentialsProvider, Beside<Credentials>)>,
}

impl Logins {
    pub(super) fn new(of_url: Login, provider: Option<&CredentialsProvider>) -> Self {
        let provider = provider.filter(|_| of_url.password.is_none()).cloned();
        let provider = provider.map(|provider| (provider, Beside::new("redlock-login")));
        Self { of_url, provider }
    }

    /// Returns the log-in of a new connection, within a part of `limit`.
    pub(super) async fn next(&self, limit: Duration) -> Result<Login, Cause> {
        let Some((provider, beside)) = &self.provider else { return Ok(self.of_url.clone()) };
        let limit = limit.mul_f64(SHARE);
        let provided = beside.run(|| {
            let CredentialsProvider(provide) = provider.clone();
            move || provide()
        });
        match timeout(limit, provided).await {
            Ok(Ok(Credentials { username, password })) => {
                Ok(Login { username, password: Some(password), db: self.of_url.db })
            }
            Ok(Err(error)) => Err(not_connected(format!("no credentials: {error}"))),
            Err(_) => Err(not_connected("no credentials: they were not read in time")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    use super::super::address::Address;
    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    fn login(url: &str) -> Login {
        Address::parse(url).unwrap().login
    }

    #[tokio::test]
    async fn provider_is_called_for_each_connection_without_login() {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let provider = CredentialsProvider::new(move || {
            let number = counted.fetch_add(1, Ordering::Relaxed);
            Ok(Credentials::new(Some("me".into()), format!("p{number}")))
        });
        let logins = Logins::new(login("redis://h/5"), Some(&provider));
        for number in 0..3 {
            let Login { username, password, db } = logins.next(LIMIT).await.unwrap();
            let expected = (Some("me".into()), Some(format!("p{number}")), 5);
            assert_eq!((username, password, db), expected);
        }
        let of_url = Logins::new(login("redis://:own@h"), Some(&provider));
        assert_eq!(of_url.next(LIMIT).await.unwrap().password.as_deref(), Some("own"));
        assert_eq!(calls.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn failing_provider_is_the_cause() {
        let cause = async |provider: CredentialsProvider, limit| {
            let next = Logins::new(login("redis://h"), Some(&provider)).next(limit).await;
            next.err().unwrap().to_string()
        };
        let failing = CredentialsProvider::new(|| Err(io::Error::other("no such file")));
        assert_eq!(cause(failing, LIMIT).await, "not connected: no credentials: no such file");
        let panicking = CredentialsProvider::new(|| panic!("on purpose"));
        let said = cause(panicking, LIMIT).await;
        assert_eq!(said, "not connected: no credentials: the call panicked");
        let (hold, held) = channel::<()>();
        let held = Mutex::new(held);
        let hanging = CredentialsProvider::new(move || {
            let _ = held.lock().unwrap().recv();
            Err(io::Error::other("late"))
        });
        let said = cause(hanging, Duration::from_millis(20)).await;
        assert_eq!(said, "not connected: no credentials: they were not read in time");
        drop(hold);
    }

    #[test]
    fn debug_shows_no_credentials() {
        let credentials = Credentials::new(Some("sesame".into()), "sesame".into());
        let provider = CredentialsProvider::new({
            let credentials = credentials.clone();
            move || Ok(credentials.clone())
        });
        assert!(!format!("{credentials:?} {provider:?}").contains("sesame"));
    }
}

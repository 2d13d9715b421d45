//! The label, which shows operators who holds a lock.

use anyhow::anyhow;
use redlock_quorum::environment::LABEL;
use redlock_quorum::{Label, printable};

use crate::exit::Failure;
use crate::global::Global;

/// Returns the label from the options. `None` leaves the default of the library, `user@host:pid`.
///
/// # Errors
/// Returns a usage error if the label cannot be part of a token. It is not shortened or replaced,
/// because the result could be the label of another holder.
pub(crate) fn label(global: &Global) -> Result<Option<String>, Failure> {
    let given = global.label.as_deref().filter(|given| !given.is_empty());
    let Some(given) = given.map(|given| given.to_string_lossy()) else { return Ok(None) };
    Label::parse(&given).map(|label| Some(label.to_string())).map_err(|invalid| {
        let origin = global.origin(&LABEL);
        // The valid part of a secret must also stay hidden.
        let fits = Label::nearest(&given).ok().filter(|_| !printable::may_be_secret(&given));
        let example = fits.map(|fits| format!("; for example: {fits}")).unwrap_or_default();
        Failure::usage(anyhow!("{origin}: {invalid}{example}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(text: &str) -> Result<Option<String>, String> {
        let mut global = Global::default();
        global.label = Some(text.into());
        label(&global).map_err(|failure| failure.cause.to_string())
    }

    #[test]
    fn invalid_label_is_refused_with_a_valid_one() {
        let longest = "x".repeat(Label::LEN_MAX);
        assert_eq!(given(&longest), Ok(Some(longest.clone())));
        assert_eq!(given("ann@web-1:4711_a.B"), Ok(Some("ann@web-1:4711_a.B".into())));
        assert_eq!(given(""), Ok(None));
        let refused = given("deploy by J\u{fc}rgen/1").unwrap_err();
        assert!(refused.starts_with("--label: the label \"deploy by J"), "{refused}");
        let fix = "1 to 64 of A-Z a-z 0-9 . _ @ : -; for example: deploy-by-J-rgen-1";
        assert!(refused.ends_with(fix), "{refused}");
        let refused = given(&format!("{longest}x")).unwrap_err();
        assert!(refused.ends_with(&format!("for example: {longest}")), "{refused}");
    }
}

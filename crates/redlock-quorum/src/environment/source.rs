//! `Source`: the place where a value was set.

/// The place where a value was set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// An option of the command.
    Option,
    /// A variable.
    Environment,
    /// A line of the configuration file, such as `line 3 of /etc/redlock/config`.
    File(String),
    /// Nowhere, so the default applies.
    #[default]
    Default,
}

impl Source {
    /// Returns the word for this source in reports.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Option => "option",
            Self::Environment => "environment",
            Self::File(_) => "file",
            Self::Default => "default",
        }
    }

    /// Returns the origin of the value of `variable`, for errors.
    pub fn origin(&self, variable: &str) -> String {
        match self {
            Self::Option => option_of(variable),
            Self::File(place) => format!("{variable} ({place})"),
            Self::Environment | Self::Default => variable.into(),
        }
    }
}

/// Returns the command's option with the same meaning as a variable.
pub(crate) fn option_of(variable: &str) -> String {
    let words = variable.trim_start_matches("REDLOCK_");
    format!("--{}", words.to_lowercase().replace('_', "-"))
}

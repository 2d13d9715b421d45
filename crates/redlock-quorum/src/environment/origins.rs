//! `Origins`: what gave each value that a program did not give itself.

use redlock_core::{InvalidNode, InvalidTls};

use crate::environment::variables::{LABEL, MAX_TTL, NODE_TIMEOUT, PREFIX, TLS_CA, TLS_CERT};
use crate::settings::{BuildError, InvalidRequest};

/// The sources of the values of variables: the variable, or an option of the command; with the file
/// that holds the value, if any.
#[derive(Clone, Default)]
pub(crate) struct Origins {
    given: Vec<(&'static str, String)>,
}

impl Origins {
    pub(crate) fn set(&mut self, variable: &'static str, origin: String) {
        self.remove(variable);
        self.given.push((variable, origin));
    }

    /// Records that the program itself has set the value.
    pub(crate) fn remove(&mut self, variable: &str) {
        self.given.retain(|(name, _)| *name != variable);
    }

    /// Adds the source of the refused value to the error.
    pub(crate) fn trace(&self, error: BuildError) -> BuildError {
        let Some(variable) = variable_of(&error) else { return error };
        let origin = self.given.iter().find(|(name, _)| *name == variable);
        given_by(&origin.map(|(_, origin)| origin.clone()), error)
    }
}

/// Adds the source of the value to the error, if the value did not come from the program.
pub(crate) fn given_by(origin: &Option<String>, error: BuildError) -> BuildError {
    match origin.clone() {
        Some(by) => BuildError::Given { by, error: Box::new(error) },
        None => error,
    }
}

/// Returns the variable whose value is refused.
fn variable_of(error: &BuildError) -> Option<&'static str> {
    match error {
        BuildError::Node(InvalidNode::Tls(error)) => Some(tls_variable(error)),
        BuildError::MaxTtl { .. } | BuildError::Default(InvalidRequest::Ttl(_)) => {
            Some(MAX_TTL.name())
        }
        BuildError::ZeroTimeout { name } if *name == "node timeout" => Some(NODE_TIMEOUT.name()),
        BuildError::Default(InvalidRequest::NodeTimeout { .. }) => Some(NODE_TIMEOUT.name()),
        BuildError::Default(InvalidRequest::Label(_)) => Some(LABEL.name()),
        BuildError::Prefix { .. } => Some(PREFIX.name()),
        _ => None,
    }
}

fn tls_variable(error: &InvalidTls) -> &'static str {
    if error.is_of_ca() { TLS_CA.name() } else { TLS_CERT.name() }
}

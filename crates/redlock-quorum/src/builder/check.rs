//! The checks of all settings, and the masters that they make.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use redlock_core::admission::MAX_TTL_MAX;
use redlock_core::{
    Clock, InvalidLabel, InvalidNode, Label, Node, RedisNode, RedisSetup, Resource, Ttl,
};
use redlock_protocol::quorum::MASTERS_MAX;
use redlock_protocol::terms::Limits;

use super::{RedlockBuilder, Url};
use crate::environment::label;
use crate::environment::masters::place_of;
use crate::environment::origins::given_by;
use crate::settings::{BuildError, InvalidRequest, Quarantine, Settings};

impl RedlockBuilder {
    pub(super) fn settings(&self) -> Result<Settings, BuildError> {
        let settings = Settings {
            prefix: self.checked_prefix()?,
            limits: Limits {
                ttl: self.ttl,
                max_ttl: self.max_ttl,
                node_timeout: self.node_timeout,
                clock_guard: self.clock_guard,
                connect_timeout: self.connect_timeout.unwrap_or(Self::CONNECT_TIMEOUT),
            },
            quarantine: self.quarantine,
            fencing: !self.is_plain,
            queue: !self.is_unqueued,
            hand_over: !self.hands_nothing_on,
            wait: self.wait.unwrap_or(Duration::from_secs(10)),
            label: self.checked_label().map_err(InvalidRequest::from)?,
        };
        let limits = settings.limits;
        let (max_ttl, connect_timeout) = (limits.max_ttl(), limits.connect_timeout);
        if !(Ttl::MIN..=MAX_TTL_MAX).contains(&max_ttl) {
            return Err(BuildError::MaxTtl { max_ttl });
        }
        if connect_timeout.is_zero() {
            return Err(BuildError::ZeroTimeout { name: "connect timeout" });
        }
        if limits.node_timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(BuildError::ZeroTimeout { name: "node timeout" });
        }
        if let Some(guard) = limits.clock_guard.filter(|guard| *guard > max_ttl) {
            return Err(BuildError::ClockGuard { guard, max_ttl });
        }
        limits.timing(None, settings.unread_max_ttl()).map_err(InvalidRequest::from)?;
        Ok(settings)
    }

    fn checked_prefix(&self) -> Result<Arc<[u8]>, BuildError> {
        if Resource::is_reserved(&self.prefix) || self.prefix.len() > Resource::LEN_MAX {
            let prefix = self.prefix.escape_ascii().to_string();
            return Err(BuildError::Prefix { prefix });
        }
        Ok(self.prefix.as_slice().into())
    }

    fn checked_label(&self) -> Result<Option<Label>, InvalidLabel> {
        self.label.check(|| if self.urls.is_empty() { None } else { label::of_process() })
    }

    pub(super) fn nodes_of(
        &self,
        clock: &Clock,
        settings: &Settings,
    ) -> Result<Arc<[Arc<dyn Node>]>, BuildError> {
        let mut setup = RedisSetup::new(clock.clone(), settings.limits.connect_timeout);
        setup.stall_timeout = settings.limits.stall_timeout();
        setup.tls = self.tls.clone();
        setup.credentials = self.credentials.clone();
        // Without a quarantine, the record is still read, because it shows whether other clients
        // use one.
        setup.namespace = Some(settings.prefix.clone());
        setup.quarantine = settings.quarantine == Quarantine::On;
        setup.fenced = settings.fencing;
        // Without fencing tokens and the queue, the client only tests the right to release.
        setup.queues = settings.queue || settings.fencing;
        self.check_count()?;
        let mut nodes: Vec<Arc<dyn Node>> = Vec::with_capacity(MASTERS_MAX);
        let mut names = HashSet::new();
        for (place, Url { url, .. }) in self.urls.iter().enumerate() {
            let node = RedisNode::new(url, &setup).map_err(|error| self.bad_node(error, place))?;
            if !names.insert(node.name().to_owned()) {
                return Err(given_by(&self.origin(place), same_node(&node)));
            }
            nodes.push(Arc::new(node));
        }
        if let Some(twin) = self.masters.iter().find(|node| !names.insert(node.name().to_owned())) {
            return Err(same_node(&**twin));
        }
        self.check_clock()?;
        nodes.extend(self.masters.iter().cloned());
        Ok(nodes.into())
    }

    fn check_clock(&self) -> Result<(), BuildError> {
        let virtual_one = self.masters.iter().find(|master| master.is_in_virtual_time());
        match virtual_one.filter(|_| self.clock.is_none()) {
            Some(master) => Err(BuildError::NoClock { node: master.name().to_owned() }),
            None => Ok(()),
        }
    }

    fn check_count(&self) -> Result<(), BuildError> {
        match self.urls.len() + self.masters.len() {
            0 => Err(BuildError::NoMasters),
            1..=MASTERS_MAX => Ok(()),
            masters => {
                let origin = self.urls.last().and_then(|url| url.origin.clone());
                Err(given_by(&origin, BuildError::TooManyMasters { masters }))
            }
        }
    }

    /// Returns the source of a URL, with its position if the source has several URLs.
    fn origin(&self, url: usize) -> Option<String> {
        let places: Vec<_> = self.urls.iter().map(|url| url.origin.as_deref()).collect();
        place_of(&places, url)
    }

    fn bad_node(&self, error: InvalidNode, url: usize) -> BuildError {
        match error {
            InvalidNode::Url(_) => given_by(&self.origin(url), error.into()),
            error => self.origins.trace(error.into()),
        }
    }
}

fn same_node(node: &dyn Node) -> BuildError {
    BuildError::SameNode { node: node.name().to_owned() }
}

//! `Broken`: a client with one flaw, which the judge must catch. It changes what goes in and out at
//! the edge of the shell: the client in it is the one that ships.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use redlock_core::{Answer, Instant, Op, Token, Verb, Verdict, Vote};
use redlock_protocol::client::ids::{LockId, Ticket};
use redlock_testkit::World;

use crate::story::{GUARD, TTL};
use crate::streams::Stream;

/// What is wrong with a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// Half of the masters, rounded down, is enough for it.
    HalfIsEnough,
    /// It takes silence for consent.
    CountsUnknown,
    /// It deletes whatever key is there.
    ReleasesWithoutCompare,
    /// Its validity starts with the replies.
    ValidityFromReplies,
    /// It takes the guard on the masters for validity.
    ValidityWithGuard,
    /// It goes on after its lease has ended.
    RevivesWhatIsGone,
    /// It uses one token forever, takes its own earlier keys as grants, and never cleans up.
    ReusesItsToken,
    /// Its fencing token is the largest of a majority's counters.
    Maximum,
    /// The same, written back to any majority.
    WriteBack,
    /// Its fencing token is the largest TIME of a majority.
    ServerTime,
}

impl Flaw {
    /// All flaws.
    pub const ALL: [Self; 10] = [
        Self::HalfIsEnough,
        Self::CountsUnknown,
        Self::ReleasesWithoutCompare,
        Self::ValidityFromReplies,
        Self::ValidityWithGuard,
        Self::RevivesWhatIsGone,
        Self::ReusesItsToken,
        Self::Maximum,
        Self::WriteBack,
        Self::ServerTime,
    ];

    /// Returns `true` if it concerns the fencing tokens.
    pub fn is_of_tokens(self) -> bool {
        matches!(self, Self::Maximum | Self::WriteBack | Self::ServerTime)
    }
}

/// How many grants a client remembers for a fencing token, and how many assumed votes.
const GRANTS: usize = 64;
const ASSUMED: usize = 256;

/// A counter on each master, which grows with each grant there. All clients share them.
pub(crate) type Counters = Rc<RefCell<Vec<u64>>>;

/// The flaw of one client, and what it needs for it.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    flaw: Flaw,
    draw: Stream,
    masters: usize,
    token: (u64, u64),
    /// Requests of attempts without an answer: when they were sent, where and as what.
    silent: Vec<(Instant, usize, u128)>,
    /// Where consent was taken for granted, and for what: the vote itself comes too late.
    assumed: VecDeque<(usize, u128)>,
    /// The last attempt with a vote that was changed.
    changed: Option<u128>,
    counters: Counters,
    /// The latest grants: of which attempt, and the counter of the master.
    grants: VecDeque<(u128, u64)>,
}

impl Broken {
    pub(crate) fn new(flaw: Flaw, mut draw: Stream, counters: Counters) -> Self {
        let token = (draw.number(), draw.number());
        let (masters, silent) = (counters.borrow().len(), Vec::new());
        let (assumed, grants) = (VecDeque::new(), VecDeque::new());
        Self { flaw, draw, masters, token, silent, assumed, changed: None, counters, grants }
    }

    fn is(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    pub(crate) fn only_token(&self) -> Option<(u64, u64)> {
        self.is(Flaw::ReusesItsToken).then_some(self.token)
    }

    pub(crate) fn revives(&self) -> bool {
        self.is(Flaw::RevivesWhatIsGone)
    }

    /// The deadline that the holder sees.
    pub(crate) fn deadline(&self, deadline: Instant) -> Instant {
        match self.flaw {
            Flaw::ValidityWithGuard => deadline.saturating_add(GUARD * 2),
            _ => deadline,
        }
    }

    /// Changes a vote before the client sees it. Returns `false` if it does not see it.
    pub(crate) fn read(&mut self, vote: &mut Vote, now: Instant) -> bool {
        let is_late = self.assumed.contains(&(vote.master, vote.ticket));
        if !is_late {
            self.change(vote, now);
        }
        !is_late
    }

    fn change(&mut self, vote: &mut Vote, now: Instant) {
        self.silent.retain(|(_, master, ticket)| (*master, *ticket) != (vote.master, vote.ticket));
        if self.is(Flaw::ValidityFromReplies) {
            vote.sent_at = now;
        }
        if !matches!(Ticket::unpack(vote.ticket), Ticket::Attempt(_)) {
            return;
        }
        let is_granted = vote.answer.verdict == Verdict::Granted;
        let is_own = |token: &str| token.starts_with(&format!("{:016x}", self.token.0));
        let consents = match (self.flaw, &vote.answer.verdict) {
            (Flaw::HalfIsEnough, _) => !is_granted && self.changed != Some(vote.ticket),
            (Flaw::ReusesItsToken, Verdict::Held { token: Some(token), .. }) => is_own(token),
            _ => false,
        };
        if is_granted && self.flaw.is_of_tokens() {
            self.count(vote);
        }
        if consents {
            self.changed = Some(vote.ticket);
            vote.answer = Answer::granted();
        }
    }

    /// Changes a request before it is sent. `None` if it is not sent.
    pub(crate) fn send(
        &mut self,
        op: Op,
        ticket: Ticket,
        master: usize,
        worlds: &[World],
        now: Instant,
    ) -> Option<Op> {
        if self.is(Flaw::CountsUnknown) && matches!(ticket, Ticket::Attempt(_)) {
            self.silent.push((now, master, ticket.pack()));
        }
        let releases = matches!(op.verb(), Verb::Release | Verb::Leave { .. });
        match self.flaw {
            Flaw::ReusesItsToken if releases => None,
            Flaw::ReleasesWithoutCompare if releases => {
                let holder = worlds[master].holder(op.key(), now);
                let holder = holder.and_then(|holder| Token::parse(&holder).ok());
                Some(holder.map_or_else(|| op.clone(), |holder| Op::release(op.key(), holder)))
            }
            _ => Some(op),
        }
    }

    /// The votes that the client assumes, because masters did not cast them in time.
    pub(crate) fn assume(&mut self, now: Instant) -> Vec<Vote> {
        let is_late = |sent_at: Instant| sent_at.saturating_add(TTL / 50) <= now;
        let late = self.silent.extract_if(.., |(sent_at, ..)| is_late(*sent_at));
        let late: Vec<_> = late.collect();
        self.assumed.extend(late.iter().map(|(_, master, ticket)| (*master, *ticket)));
        self.assumed.drain(..self.assumed.len().saturating_sub(ASSUMED));
        late.into_iter()
            .map(|(at, master, ticket)| Vote::new(master, ticket, at, Answer::granted()))
            .collect()
    }

    fn count(&mut self, vote: &Vote) {
        let counter = &mut self.counters.borrow_mut()[vote.master];
        *counter += 1;
        self.grants.push_back((vote.ticket, *counter));
        if self.grants.len() > GRANTS {
            self.grants.pop_front();
        }
    }

    /// The fencing token that this caller gets for a lock.
    pub(crate) fn fencing_token(
        &mut self,
        token: u64,
        (caller, lock): (usize, LockId),
        worlds: &[World],
        now: Instant,
    ) -> u64 {
        match self.flaw {
            Flaw::Maximum | Flaw::WriteBack => self.largest(Ticket::Attempt(lock).pack()),
            Flaw::ServerTime => {
                let time = |master: usize| worlds[master].time_us(now);
                let latest = self.majority().into_iter().map(time).max().unwrap_or(0);
                latest * 64 + caller as u64
            }
            _ => token,
        }
    }

    /// The largest counter of the masters that have granted this attempt.
    fn largest(&mut self, attempt: u128) -> u64 {
        let of_it = self.grants.iter().filter(|(ticket, _)| *ticket == attempt);
        let largest = of_it.map(|(_, counter)| *counter).max().unwrap_or(0);
        if self.is(Flaw::WriteBack) {
            let written = self.majority();
            let mut counters = self.counters.borrow_mut();
            for master in written {
                counters[master] = counters[master].max(largest);
            }
        }
        largest
    }

    /// Any majority of the masters.
    fn majority(&mut self) -> Vec<usize> {
        let mut masters: Vec<usize> = (0..self.masters).collect();
        while masters.len() > self.masters / 2 + 1 {
            let out = self.draw.index(masters.len());
            masters.swap_remove(out);
        }
        masters
    }
}

//! Questions about one key or one mark, to all masters or some.

use std::time::Duration;

use redlock_core::{Instant, Key, Mark, Op, Vote};

use super::{Context, Told, View};
use crate::client::ids::{InspectionId, RequestId};
use crate::client::table::Table;
use crate::inspection::Inspection;
use crate::marks::MarkAnswer;
use crate::master_set::MasterSet;
use crate::token::attempt::Defeat;
use crate::votes::answer::{Counts, Judged};
use crate::votes::last_answer::LastAnswer;

/// The questions without an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Inspections {
    questions: Table<InspectionId, Question>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Question {
    inspection: Inspection,
    about: About,
    asked: MasterSet,
    node_timeout: Duration,
    /// When it was sent, while it counts as open in the line.
    opened: Option<Instant>,
}

/// The subject of a question.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum About {
    /// The state of a key on each master.
    Status(Key),
    /// How many callers wait in a queue: the largest number that a master has reported.
    Waiters(Key, u32),
    /// Why the requests of these callers for one key have failed.
    Failure(Key, Vec<RequestId>, Defeat),
    /// A mark, with the answer of each master. The new mark and how many milliseconds it is kept, or
    /// `None` to read it.
    Mark(Key, Option<(Mark, u64)>, Vec<MarkAnswer>),
}

/// A question whose turn has come.
#[derive(Debug)]
pub struct Asked {
    /// The request.
    pub op: Op,
    /// The masters that it goes to.
    pub masters: MasterSet,
    /// When its time is over.
    pub until: Instant,
}

impl About {
    fn op(&self) -> Op {
        match self {
            Self::Status(key) | Self::Failure(key, ..) => Op::inspect(key.clone()),
            Self::Waiters(queue, _) => Op::count_waiters(queue.clone()),
            Self::Mark(key, Some((mark, px)), _) => Op::raise_mark(key.clone(), mark.clone(), *px),
            Self::Mark(key, None, _) => Op::read_mark(key.clone()),
        }
    }
}

impl Inspections {
    pub(super) fn clear(&mut self) {
        self.questions.clear();
    }

    pub(super) fn contains(&self, id: InspectionId) -> bool {
        self.questions.contains(id)
    }

    pub(super) fn begin(
        &mut self,
        mut about: About,
        asked: MasterSet,
        node_timeout: Duration,
        view: &impl View,
    ) -> InspectionId {
        let masters = view.count();
        if let About::Mark(_, _, answers) = &mut about {
            answers.resize(masters, MarkAnswer::default());
        }
        let inspection = Inspection::asking(masters, asked);
        self.questions.insert(Question { inspection, about, asked, node_timeout, opened: None })
    }

    pub(super) fn explain(
        &mut self,
        about: About,
        attempt: Vec<LastAnswer>,
        node_timeout: Duration,
        view: &impl View,
    ) -> InspectionId {
        let masters = view.count();
        let inspection = Inspection::behind(masters, attempt);
        let asked = MasterSet::all(masters);
        self.questions.insert(Question { inspection, about, asked, node_timeout, opened: None })
    }

    pub(super) fn share(&mut self, id: InspectionId, caller: RequestId) -> bool {
        match self.questions.get_mut(id).map(|question| &mut question.about) {
            Some(About::Failure(_, callers, _)) => {
                callers.push(caller);
                true
            }
            _ => false,
        }
    }

    pub(super) fn turn(&mut self, id: InspectionId, now: Instant) -> Option<Asked> {
        let question = self.questions.get_mut(id)?;
        question.opened = Some(now);
        let until = now.saturating_add(question.node_timeout);
        Some(Asked { op: question.about.op(), masters: question.asked, until })
    }

    pub(super) fn vote(
        &mut self,
        id: InspectionId,
        vote: &Vote,
        counts: &Counts,
        view: &impl View,
        cx: &mut Context<'_>,
    ) {
        let Some(question) = self.questions.get_mut(id) else { return };
        let counts = match &mut question.about {
            About::Status(_) => &Counts::Yes,
            About::Waiters(_, most) => {
                *most = vote.answer.queued.map_or(0, |queued| queued.waiters).max(*most);
                &Counts::Yes
            }
            About::Failure(..) => match view.seen(vote.master, cx.now).why_no_locks {
                Some(cause) => &Counts::Not(cause),
                None => counts,
            },
            About::Mark(_, _, answers) => {
                let is_clear = counts.apply(&vote.answer.verdict).is_clear();
                let marked = vote.answer.marked.as_deref().cloned();
                answers[vote.master] = MarkAnswer { marked, counts: is_clear };
                counts
            }
        };
        let judged = Judged { answer: &vote.answer, counts };
        let latency = cx.now.saturating_since(vote.sent_at);
        question.inspection.vote(vote.master, judged, latency);
        if question.inspection.is_answered() {
            question.close(cx);
        }
        self.changed(id, cx);
    }

    pub(super) fn late_vote(
        &mut self,
        id: InspectionId,
        master: usize,
        judged: Judged<'_>,
        latency: Duration,
    ) {
        if let Some(question) = self.questions.get_mut(id) {
            question.inspection.attempt_vote(master, judged, latency);
        }
    }

    pub(super) fn due(&mut self, id: InspectionId, cx: &mut Context<'_>) {
        if let Some(question) = self.questions.get_mut(id) {
            question.inspection.time_out();
            self.changed(id, cx);
        }
    }

    pub(super) fn dismiss_failures(&mut self, cx: &mut Context<'_>) {
        let is_failure = |question: &Question| matches!(question.about, About::Failure(..));
        let found = self.questions.iter().filter(|(_, question)| is_failure(question));
        let ids: Vec<InspectionId> = found.map(|(id, _)| id).collect();
        for id in ids {
            if let Some(mut question) = self.questions.remove(id) {
                question.close(cx);
            }
        }
    }

    fn changed(&mut self, id: InspectionId, cx: &mut Context<'_>) {
        if !self.questions.get(id).is_some_and(|question| question.inspection.is_over()) {
            return;
        }
        let Some(mut question) = self.questions.remove(id) else { return };
        question.close(cx);
        let answers = match question.about {
            About::Failure(..) => question.inspection.into_explanation(),
            _ => question.inspection.into_answers(),
        };
        cx.news.push(Told::Inspected(id, Box::new(question.about), answers));
    }
}

impl Question {
    /// Records that a quorum has answered, or that the question no longer waits for answers.
    fn close(&mut self, cx: &mut Context<'_>) {
        if let Some(opened) = self.opened.take() {
            cx.news.push(Told::Closed(opened, self.node_timeout));
        }
    }
}

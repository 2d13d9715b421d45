//! The parts of the model and their bounds.

use super::broken::Broken;

/// The bounds of one run. Numbers apply to the whole run.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    /// Its name in the output.
    pub name: &'static str,
    /// How many masters there are.
    pub masters: usize,
    /// How many attempts each contender may make.
    pub attempts: &'static [u8],
    /// Whether contenders want one lock each, of resources that have the same member.
    pub apart_resources: bool,
    /// Ballots are numbers up to this; 0 where locks have no tokens.
    pub ballots: u8,
    /// By contender, the only ballot that it begins with. Empty if it may be any.
    pub numbers: &'static [u8],
    /// Whether a contender begins only when the one before it has got the lock, or given it up.
    pub by_turns: bool,
    /// The score of each master at the start.
    pub scores: [u8; 3],
    /// How many ballots are proposed after the first one of each attempt.
    pub second: u8,
    /// Whether the commands of an acquire are carried out apart.
    pub apart: bool,
    /// How many ticks a key lasts. Its holder may use at least one tick, and fewer than that.
    pub ttl: u8,
    /// When time ends.
    pub horizon: u8,
    /// How many contenders, from the first on, may also read grants in a later tick than the one in
    /// which they are made.
    pub late: usize,
    /// Whether those contenders may also read grants immediately. Otherwise each is read in a
    /// separate step.
    pub prompt: bool,
    /// Whether locks are released; otherwise each is left to its expiry.
    pub releases: bool,
    /// How many extensions there are.
    pub extensions: u8,
    /// How many connections break.
    pub breaks: u8,
    /// How many attempts are abandoned before they are decided: by the node timeout, or by a
    /// shutdown of the handle.
    pub cancels: u8,
    /// How often a clock gains or loses a tick. A master gains, a contender loses.
    pub slips: u8,
    /// How many slips any two clocks may be apart, as far as the assumption goes.
    pub drift: u8,
    /// How often the first contender resumes a lease that another contender has passed on.
    pub resumes: u8,
    /// By master, until when its key is there at the start; 0 where it is not.
    pub planted: [u8; 3],
    /// How many requests of its first holder to set the key are still on their way.
    pub plants: u8,
    /// By contender, whether it enters the queue at master 0: it sends ENTER there, and TAKE to the
    /// others in the place of SET NX. With a queue, a lease may be left to the next contender by
    /// reservations. Empty without a queue.
    pub enters: &'static [bool],
    /// How often masters that refused are queried again with the same token.
    pub again: u8,
    /// How often a lease is passed on inside a contender.
    pub hand_overs: u8,
    /// How many keys vanish, as where a master's clock jumps.
    pub vanish: u8,
    /// Whether clocks hold to their assumption: then one holder at most is valid, and tokens have
    /// the order of leases.
    pub clocks_hold: bool,
    /// Whether the order in which masters had keys is compared with the tokens.
    pub order: bool,
    /// How many masters lose their data. With `restarts`, a connection reports it immediately.
    pub losses: u8,
    /// The masters that may.
    pub lossy: &'static [usize],
    /// Whether a master that loses data is another process then, and so all connections to it
    /// break.
    pub restarts: bool,
    /// Whether the keys are there again when it has lost its ballots.
    pub keeps_keys: bool,
    /// Whether masters that lost their data are admitted again.
    pub admits: bool,
    /// The broken rule.
    pub broken: Option<Broken>,
}

/// Two contenders with one attempt each, and nothing goes wrong but that masters are late.
const TWO: Part = Part {
    name: "",
    masters: 3,
    attempts: &[1, 1],
    apart_resources: false,
    ballots: 0,
    numbers: &[],
    by_turns: false,
    scores: [0; 3],
    second: 0,
    apart: false,
    ttl: 2,
    horizon: 0,
    late: 0,
    prompt: true,
    releases: false,
    extensions: 0,
    breaks: 0,
    cancels: 0,
    slips: 0,
    drift: 1,
    resumes: 0,
    planted: [0; 3],
    plants: 0,
    enters: &[],
    again: 0,
    hand_overs: 0,
    vanish: 0,
    clocks_hold: true,
    order: false,
    losses: 0,
    lossy: &[0, 1, 2],
    restarts: false,
    keeps_keys: false,
    admits: false,
    broken: None,
};

/// The same with ballots.
const FENCED: Part = Part { ballots: 2, releases: true, ..TWO };

/// A lease that one contender takes over while another wants the lock. Its first holder has got it
/// from the masters 0 and 1, with token 1, and has extended it on 1.
const RESUME: Part = Part {
    attempts: &[0, 1],
    ballots: 3,
    scores: [1, 1, 0],
    resumes: 1,
    planted: [2, 3, 0],
    plants: 1,
    horizon: 2,
    ..FENCED
};

/// A lease that is left to the next contender, with ballots.
const LEFT: Part = Part { enters: &[false, true], ..FENCED };

/// Returns the bounds that the ordinary tests exhaust in seconds.
pub fn small() -> Vec<Part> {
    vec![
        Part { name: "late", late: 2, horizon: 2, ..TWO },
        Part { name: "released", releases: true, ..TWO },
        Part { name: "drift", ttl: 5, horizon: 4, slips: 1, ..TWO },
        Part { name: "extend", extensions: 1, horizon: 2, ..TWO },
        Part { name: "first", ..FENCED },
        Part { name: "resume", numbers: &[2, 3], ..RESUME },
        Part { name: "reserved", again: 1, ..LEFT },
        Part { name: "handed", hand_overs: 1, ..FENCED },
    ]
}

/// Returns the bounds of `make model`.
pub fn large() -> Vec<Part> {
    let again = Part { attempts: &[2, 1], releases: true, ..TWO };
    let restart = Part { losses: 1, restarts: true, admits: true, releases: false, ..FENCED };
    let plain = Part { ballots: 0, ..LEFT };
    let resume_loss = Part { losses: 1, lossy: &[0], admits: true, ..RESUME };
    vec![
        Part { name: "late", late: 2, horizon: 2, ..TWO },
        Part { name: "late-released", late: 2, releases: true, horizon: 1, ..TWO },
        Part { name: "released", releases: true, horizon: 2, ..TWO },
        Part { name: "break", late: 2, breaks: 1, releases: true, horizon: 1, ..TWO },
        Part { name: "again", breaks: 1, cancels: 1, ..again },
        Part { name: "cancel", cancels: 1, releases: true, horizon: 1, ..TWO },
        Part { name: "drift", ttl: 5, horizon: 5, slips: 3, ..TWO },
        Part { name: "extend", extensions: 1, horizon: 3, ..TWO },
        Part { name: "extend-late", late: 2, extensions: 1, horizon: 3, ..TWO },
        Part { name: "first", ballots: 3, apart: true, breaks: 1, ..FENCED },
        Part { name: "second", ballots: 3, second: 2, cancels: 1, ..FENCED },
        Part { name: "second-apart", ballots: 3, second: 1, apart: true, ..FENCED },
        Part { name: "hold", late: 2, releases: false, horizon: 3, ..FENCED },
        Part { name: "vanish", vanish: 2, clocks_hold: false, apart: true, order: true, ..FENCED },
        Part { name: "three", attempts: &[1, 1, 1], by_turns: true, ballots: 3, ..FENCED },
        Part { name: "shared", apart_resources: true, apart: true, second: 1, ..FENCED },
        Part { name: "restart", horizon: 2, lossy: &[0], ..restart },
        Part { name: "loss", late: 1, losses: 1, lossy: &[0], ..FENCED },
        Part { name: "resume", ..RESUME },
        Part { name: "resume-late", late: 1, numbers: &[2, 3], ..RESUME },
        Part { name: "resume-second", second: 1, numbers: &[2, 3], ..RESUME },
        Part { name: "resume-restart", numbers: &[2, 3], restarts: true, ..resume_loss },
        Part { name: "keys-kept", keeps_keys: true, horizon: 2, lossy: &[0], ..restart },
        Part { name: "reserved", ballots: 3, again: 1, second: 1, cancels: 1, ..LEFT },
        Part { name: "reserved-apart", again: 1, second: 1, apart: true, ..LEFT },
        Part { name: "reserved-break", again: 1, breaks: 1, ..LEFT },
        Part { name: "reserved-both", attempts: &[2, 1], enters: &[true, true], again: 1, ..plain },
        Part {
            name: "reserved-three",
            attempts: &[1, 1, 1],
            by_turns: true,
            ballots: 3,
            enters: &[false, true, true],
            ..LEFT
        },
        Part {
            name: "reserved-vanish",
            again: 1,
            vanish: 1,
            clocks_hold: false,
            apart: true,
            order: true,
            ..LEFT
        },
        Part { name: "reserved-late", late: 2, again: 1, horizon: 1, ..plain },
        Part { name: "reserved-time", again: 1, horizon: 2, ..LEFT },
        Part { name: "reserved-resume", enters: &[false, true], numbers: &[2, 3], ..RESUME },
        Part { name: "handed", ballots: 3, hand_overs: 2, breaks: 1, second: 1, ..FENCED },
        Part {
            name: "handed-vanish",
            hand_overs: 2,
            vanish: 2,
            clocks_hold: false,
            order: true,
            ..FENCED
        },
        Part { name: "handed-late", hand_overs: 1, late: 1, horizon: 2, releases: false, ..FENCED },
        Part {
            name: "handed-extend",
            hand_overs: 2,
            extensions: 1,
            horizon: 2,
            releases: false,
            numbers: &[1, 2],
            ..FENCED
        },
        Part {
            name: "handed-drift",
            hand_overs: 1,
            numbers: &[1, 2],
            ttl: 5,
            horizon: 5,
            slips: 2,
            releases: false,
            ..FENCED
        },
        Part { name: "handed-reserved", hand_overs: 1, again: 1, horizon: 1, ..LEFT },
        Part { name: "handed-restart", hand_overs: 1, horizon: 2, lossy: &[0], ..restart },
    ]
}

/// Returns the part in which a mutant is searched.
pub fn named(broken: Broken) -> Part {
    use Broken as B;
    let again = Part { attempts: &[2, 1], releases: true, cancels: 1, ..TWO };
    let turns = Part { numbers: &[2, 1], by_turns: true, ..FENCED };
    let held = Part { numbers: &[1, 2], late: 1, horizon: 2, ..FENCED };
    let lost = Part { losses: 1, lossy: &[0], admits: true, horizon: 2, ..turns };
    let part = match broken {
        B::Drift => Part { by_turns: true, ttl: 5, horizon: 4, slips: 2, drift: 2, ..TWO },
        B::FromReply => Part { late: 2, horizon: 3, ..TWO },
        B::MajorityOfReachable => TWO,
        B::ReleaseWithoutCompare => again,
        B::OneValue => Part { breaks: 1, ..again },
        B::SentTwice => Part { attempts: &[1], releases: true, late: 1, breaks: 1, ..TWO },
        B::ScoresFall | B::AnswerIgnored | B::TooFewBallots => FENCED,
        B::BallotsAddUp => {
            Part { scores: [0, 2, 0], numbers: &[1, 2], second: 1, ballots: 3, breaks: 1, ..turns }
        }
        B::SetBehindBallot => Part { apart: true, ..FENCED },
        B::KeyNotRead => Part { apart: true, vanish: 1, clocks_hold: false, order: true, ..FENCED },
        B::MembersAreMade => Part { losses: 1, ..turns },
        B::ReaddedCounts => Part { prompt: false, ..held },
        B::HandedOutLate => Part { releases: false, ..held },
        B::FromExtension => Part { keeps_keys: true, late: 1, prompt: false, ..lost },
        B::RefusedCounts => Part {
            losses: 1,
            lossy: &[2],
            extensions: 1,
            horizon: 2,
            releases: false,
            numbers: &[1, 2],
            ..turns
        },
        B::CarriedOver => Part { attempts: &[2], ..FENCED },
        B::FormerToken => Part { numbers: &[4, 3], ballots: 4, ..RESUME },
        B::ResumedUnheld => Part { numbers: &[2, 3], late: 1, planted: [2, 2, 0], ..RESUME },
        B::ResumedFromExtension | B::HoldsMerged => {
            let planted = [2, 2, 0];
            Part { numbers: &[2, 3], late: 1, planted, by_turns: true, second: 1, ..RESUME }
        }
        B::ResumedAddsUp => Part {
            numbers: &[2, 3],
            scores: [1, 1, 3],
            planted: [0, 2, 2],
            ballots: 4,
            second: 1,
            ..RESUME
        },
        B::BallotAhead => Part { numbers: &[2, 3], ..RESUME },
        B::ResumedByTooFew => Part { numbers: &[2, 3], ..RESUME },
        B::FloorFromTooFew => Part { restarts: true, releases: false, ..lost },
        B::FloorEarly => Part { releases: false, ..lost },
        B::ReservationGrants => Part { attempts: &[2, 1], ballots: 0, ..LEFT },
        B::TakeReplaces => Part { ballots: 0, ..LEFT },
        B::ReserveWithoutCompare => Part { attempts: &[2, 1], ballots: 0, ..LEFT },
        B::TakenTwice => {
            Part { attempts: &[2, 1], ballots: 0, breaks: 1, enters: &[true, true], ..LEFT }
        }
        B::RefusedBefore => Part { ballots: 0, again: 1, cancels: 1, ..LEFT },
        B::HandedOnOver => {
            Part { numbers: &[1, 2], hand_overs: 1, horizon: 2, releases: false, ..FENCED }
        }
        B::HandedOnOutside => Part { hand_overs: 1, ..FENCED },
        B::OrderWithoutClocks => Part { hand_overs: 1, vanish: 2, clocks_hold: false, ..FENCED },
    };
    Part { name: "mutant", broken: Some(broken), ..part }
}

impl Part {
    /// Whether it makes no difference how masters are numbered. A mutant may be looked for in a
    /// part of the states.
    pub(crate) fn are_masters_alike(&self) -> bool {
        let is_loss_alike =
            self.losses == 0 || self.lossy.len() == self.masters || self.broken.is_some();
        is_loss_alike && self.resumes == 0
    }

    /// Which lock a contender wants.
    pub(crate) fn resource(&self, own: usize) -> usize {
        if self.apart_resources { own % 2 } else { 0 }
    }

    /// Which of the masters that a contender knows of this one is.
    pub(crate) fn place(&self, own: usize, master: usize) -> usize {
        master - self.shift(own)
    }

    /// Which master that is.
    pub(crate) fn master(&self, own: usize, place: usize) -> usize {
        place + self.shift(own)
    }

    fn shift(&self, own: usize) -> usize {
        if self.broken == Some(Broken::MajorityOfReachable) { own } else { 0 }
    }
}

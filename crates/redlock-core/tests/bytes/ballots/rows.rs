//! Every way in which the requests with a ballot or a score are answered.

use std::time::Duration;

use redlock_core::{Answer, Balloted, Cause, NotAdmitted, Op, Verdict, WhyNot};
use redlock_testkit::lab::bulk;

use super::{ballot, fenced, give_back, resume, score};

pub(super) fn accepted() -> Answer {
    Answer::granted().with_ballot(Balloted::Accepted)
}

fn refused(balloted: Balloted) -> Answer {
    Answer::new(Verdict::BallotRefused).with_ballot(balloted)
}

pub(super) fn at(score: u64) -> Answer {
    Answer::granted().with_ballot(Balloted::Score(score))
}

pub(super) fn held() -> Answer {
    Answer::new(Verdict::HELD)
}

fn not_ours() -> Answer {
    Answer::new(Verdict::NotOurs)
}

fn error(text: &str) -> Answer {
    Answer::unknown(Cause::ErrorReply(text.into()))
}

fn kept(text: &str) -> Answer {
    error(text).with_key_set()
}

pub(super) fn not_admitted(why: WhyNot) -> Answer {
    let not_admitted = NotAdmitted::new(why);
    Answer::unknown(Cause::NotAdmitted(not_admitted.into())).with_key_set()
}

fn gone() -> Answer {
    not_admitted(WhyNot::Incomplete).with_ballot(Balloted::NoMember)
}

fn foreign() -> Answer {
    not_admitted(WhyNot::ScoreTooLarge).with_ballot(Balloted::Foreign)
}

const WRONGTYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

/// Replies to an acquire with a ballot, and what they mean.
pub(super) fn replies_to_acquire() -> Vec<(String, Answer)> {
    let rows: &[(&str, Answer)] = &[
        ("+OK :1 t", accepted()),
        ("+OK :0 t", refused(Balloted::Refused)),
        ("+OK :1 x", not_ours()),
        ("+OK :0 x", not_ours()),
        ("+OK :1 _", not_ours()),
        ("+OK :1 $-1", not_ours()),
        ("+OK :1 tt", not_ours()),
        ("+OK :0 _", not_ours()),
        ("+OK :1 -W", not_ours()),
        ("_ :0 x", held()),
        ("_ :1 x", held()),
        ("$-1 :0 x", held()),
        ("_ :0 _", held()),
        ("_ :0 $-1", held()),
        ("_ :0 -W", held()),
        ("_ :0 -NOPERM", held()),
        ("_ -OOM x", held()),
        ("_ :1 t", held()),
        ("-OOM -OOM _", error("OOM")),
        ("-OOM :1 t", error("OOM")),
        ("-NOPERM -NOPERM t", error("NOPERM")),
        ("+OK -OOM t", kept("OOM")),
        ("+OK -W t", gone()),
        ("+OK -NOPERM t", kept("NOPERM")),
        ("+OK :1 -NOPERM", kept("NOPERM")),
        ("+OK :0 -NOPERM", kept("NOPERM")),
        ("+OK -OOM _", not_ours()),
    ];
    rows.iter().map(|(replies, answer)| (written(replies), answer.clone())).collect()
}

fn replies_to_ballot() -> Vec<(String, Answer)> {
    let rows: &[(&str, Answer)] = &[
        (":1 ,1763755000000031 t", accepted()),
        (":1 1763755000000031 t", accepted()),
        (":1 -NOPERM t", accepted()),
        (":0 ,1763755000000063 t", refused(Balloted::Score(1_763_755_000_000_063))),
        (":0 1763755000000063 t", refused(Balloted::Score(1_763_755_000_000_063))),
        (":0 ,9007199254740991 t", refused(Balloted::Score(9_007_199_254_740_991))),
        (":0 0 t", refused(Balloted::Score(0))),
        (":1 ,63 x", not_ours()),
        (":0 ,63 x", not_ours()),
        (":0 _ _", not_ours()),
        (":0 ,63 -W", not_ours()),
        (":0 _ t", gone()),
        (":0 $-1 t", gone()),
        (":1 _ t", gone()),
        (":0 ,9007199254740992 t", foreign()),
        (":0 9007199254740992 t", foreign()),
        (":0 ,inf t", foreign()),
        (":0 inf t", foreign()),
        (":0 ,-inf t", foreign()),
        (":0 ,-1 t", foreign()),
        (":0 1.5 t", foreign()),
        (":0 1e+300 t", foreign()),
        (":1 ,inf t", foreign()),
        ("-OOM ,63 t", kept("OOM")),
        ("-NOPERM -NOPERM t", kept("NOPERM")),
        (":0 -NOPERM t", kept("NOPERM")),
        ("-W -W t", gone()),
        ("-W -W x", not_ours()),
        (":0 ,63 -NOPERM", kept("NOPERM")),
    ];
    rows.iter().map(|(replies, answer)| (written(replies), answer.clone())).collect()
}

fn replies_to_score() -> Vec<(String, Answer)> {
    let rows: &[(&str, Answer)] = &[
        (",31", at(31)),
        ("1763755000000031", at(1_763_755_000_000_031)),
        ("_", gone()),
        ("$-1", gone()),
        (",inf", foreign()),
        ("-NOPERM", kept("NOPERM")),
        ("-W", gone()),
    ];
    rows.iter().map(|(replies, answer)| (written(replies), answer.clone())).collect()
}

pub(super) fn replies_to_give_back() -> Vec<(String, Answer)> {
    let rows: &[(&str, Answer)] = &[
        ("+OK ,31", at(31)),
        ("+OK 1763755000000031", at(1_763_755_000_000_031)),
        ("_ ,31", held()),
        ("$-1 -NOPERM", held()),
        ("-OOM ,31", error("OOM")),
        ("+OK _", gone()),
        ("+OK $-1", gone()),
        ("+OK ,inf", foreign()),
        ("+OK -W", gone()),
        ("+OK -NOPERM", kept("NOPERM")),
    ];
    rows.iter().map(|(replies, answer)| (written(replies), answer.clone())).collect()
}

fn replies_to_resume() -> Vec<(String, Answer)> {
    let holder = Answer::held(Some(b"x"), Some(Duration::from_millis(5)));
    let rows: &[(&str, Answer)] = &[
        ("*3 :1 :1 1763755000000031", accepted()),
        ("*3 :1 :0 63", refused(Balloted::Score(63))),
        ("*3 :1 :0 ,63", refused(Balloted::Score(63))),
        ("*3 :1 :0 $-1", gone()),
        ("*3 :1 :0 _", gone()),
        ("*3 :1 -W -W", gone()),
        ("*3 :1 :1 inf", foreign()),
        ("*3 :1 :0 9007199254740992", foreign()),
        ("*3 :1 -OOM 63", kept("OOM")),
        ("*3 :1 -NOPERM -NOPERM", kept("NOPERM")),
        ("*3 :1 :0 -NOPERM", kept("NOPERM")),
        ("*3 :1 :1 -NOPERM", accepted()),
        (":0", not_ours()),
        ("*2 x :5", holder),
        ("*2 $-1 :5", Answer::held(None, Some(Duration::from_millis(5)))),
        (":1", not_admitted(WhyNot::AskedTooEarly)),
        ("-NOPERM", error("NOPERM")),
    ];
    rows.iter().map(|(replies, answer)| (written(replies), answer.clone())).collect()
}

/// Replies as a server writes them. A word without a sign is a bulk string.
pub(super) fn written(replies: &str) -> String {
    let write = |reply: &str| match reply {
        "-W" => format!("-{WRONGTYPE}\r\n"),
        "$-1" => "$-1\r\n".into(),
        simple if simple.starts_with(['+', ':', '_', ',', '-', '*']) => format!("{simple}\r\n"),
        text => bulk(text),
    };
    replies.split(' ').map(write).collect()
}

pub(super) fn rows() -> Vec<(Op, Vec<(String, Answer)>)> {
    vec![
        (fenced(), replies_to_acquire()),
        (ballot(), replies_to_ballot()),
        (score(), replies_to_score()),
        (give_back(), replies_to_give_back()),
        (resume(), replies_to_resume()),
    ]
}

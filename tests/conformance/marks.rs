//! The effect of marks on every node.

use redlock_core::{Label, Mark, Marked, Resource};

use super::*;

fn key() -> Arc<[u8]> {
    Mark::key(b"locks:", &Resource::from(KEY))
}

fn mark(at: u64, fire: u64, by: &str) -> Mark {
    Mark { at, fire, by: Some(Label::parse(by).unwrap()) }
}

impl Asker {
    async fn read(&mut self) -> Marked {
        let answer = self.ask(Op::read_mark(key())).await;
        assert_eq!(answer.verdict, Verdict::Granted);
        *answer.marked.expect("a mark, or that there is none")
    }

    async fn raise(&mut self, mark: &Mark, px: u64) {
        let answer = self.ask(Op::raise_mark(key(), mark.clone(), px)).await;
        assert_eq!(answer, Answer::granted());
    }

    async fn mark_left(&mut self) -> Duration {
        holder(&self.ask(Op::inspect(key())).await).1.expect("a mark expires")
    }
}

#[tokio::test]
async fn mark_is_kept_under_its_prefixed_name_and_read_with_time() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    assert_eq!(&*key(), b"locks:redlock-quorum:1:done:orders:42");
    let (before, none) = (node.facts.time_us.unwrap() / 1_000, node.read().await);
    assert_eq!(none.mark, None);
    assert!((before..before + 10_000).contains(&none.time), "{none:?} and {before}");
    let first = mark(none.time, 0, "me@web-1:4711");
    node.raise(&first, LONG).await;
    assert_eq!(holder(&node.ask(Op::inspect(key())).await).0, Some(&*first.to_string()));
    backend.pass(Duration::from_millis(100)).await;
    let read = node.read().await;
    assert_eq!(read.mark, Some(first));
    assert!(read.time >= none.time + 100);
    let nobody = Mark { at: none.time + 1, fire: Mark::END - 1, by: None };
    node.raise(&nobody, LONG).await;
    assert_eq!(node.read().await.mark, Some(nobody));
}

/// The script, and what the rest of the library takes for it, say the same of every pair.
#[tokio::test]
async fn mark_never_decreases() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    let large = Mark::END - 1;
    let marks = [
        mark(5, 7, "a"),
        mark(5, 9, "b"),
        mark(4, 10, "c"),
        mark(1_763_866_800_000, 1, "d"),
        Mark::default(),
        mark(1_763_866_800_001, 20_261_123, "e"),
        mark(large - 1, large, "f"),
        mark(large, large - 1, "g"),
    ];
    let mut expected = Mark::default();
    for mark in marks.iter().chain(&marks) {
        node.raise(mark, LONG).await;
        expected = expected.raised(mark);
        assert_eq!(node.read().await.mark.as_ref(), Some(&expected), "raised to {mark}");
    }
}

#[tokio::test]
async fn mark_lasts_for_the_longest_requested_time() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    let month = 32 * 24 * 3_600_000;
    node.raise(&mark(1, 0, "a"), month).await;
    node.raise(&mark(2, 0, "b"), LONG).await;
    assert!(node.mark_left().await > Duration::from_millis(month - LONG));
    node.raise(&mark(1, 0, "c"), 2 * month).await;
    assert!(node.mark_left().await > Duration::from_millis(2 * month - LONG), "also without news");
    let (short, other) = (mark(3, 0, "d"), Mark::key(b"locks:", &"other".into()));
    node.ask(Op::raise_mark(other.clone(), short, 100)).await;
    backend.pass(Duration::from_millis(110)).await;
    let gone = node.ask(Op::read_mark(other)).await;
    assert_eq!(gone.marked.expect("an answer").mark, None);
}

#[tokio::test]
async fn invalid_mark_is_a_permanent_error_and_kept() {
    let backend = Backend::start().await;
    let mut node = Asker::new(&backend).await;
    let long = format!("1 0 {}", "x".repeat(65));
    let refused = [Op::read_mark(key()), Op::raise_mark(key(), mark(9, 9, "a"), LONG)];
    for value in ["", "1 2", "x 2 a", "1 2 a/b", "1 2 a\n", "9007199254740992 0 -", &long] {
        backend.put(&key(), value.as_bytes(), LONG).await;
        for op in &refused {
            let answer = node.ask(op.clone()).await;
            assert!(matches!(answer.verdict, Verdict::Unknown(Cause::ErrorReply(_))), "{answer:?}");
        }
        assert_eq!(
            holder(&node.ask(Op::inspect(key())).await).0,
            Some(&*value.escape_debug().to_string())
        );
    }
    let other = Mark::key(b"locks:", &"other".into());
    backend.put_other_type(&other, LONG).await;
    for op in [Op::read_mark(other.clone()), Op::raise_mark(other, mark(9, 9, "a"), LONG)] {
        match node.ask(op).await.verdict {
            Verdict::Unknown(Cause::ErrorReply(text)) => assert!(text.starts_with("WRONGTYPE")),
            verdict => panic!("{verdict:?}"),
        }
    }
}

//! `init` beside masters that it cannot read.

use redlock_core::Node;
use redlock_quorum::{Init, InitError, Standing};
use redlock_testkit::SimNode;

use crate::arena::RESOURCE;
use crate::forgetting::{full, masters, other};

/// How a master is away whose record would show that the namespace is in use.
const AWAY: [fn(&SimNode); 2] = [SimNode::hold, SimNode::down];

fn back(master: &SimNode) {
    master.release();
    master.up();
}

/// The records of two are gone, as those of new masters are; the third one says that they are not
/// new.
#[tokio::test(start_paused = true)]
async fn an_init_that_cannot_read_one_of_the_records_writes_nothing_and_names_the_master() {
    for away in AWAY {
        let (masters, holder) = masters(3);
        full(&holder, &masters).await.forget();
        let stranger = other(&masters);
        masters.iter().for_each(|master| master.partition());
        away(&masters[2]);
        masters[..2].iter().for_each(|master| master.crash_and_restart(false));
        let error = stranger.init().await.unwrap_err();
        assert!(matches!(error, InitError::Unread { .. }), "{error}");
        let text = error.to_string();
        let named = format!("the record of {}", masters[2].name());
        assert!(text.contains(&named) && text.contains("nothing was written"), "{text}");
        assert!(masters[..2].iter().all(|master| master.data() == Default::default()));
        stranger.try_lock(RESOURCE).await.unwrap_err();
        // A person knows more.
        let again = Init { again: true, ..Init::default() };
        let report = stranger.init_with(again).await.unwrap();
        assert!(report.nodes[..2].iter().all(|node| node.now == Standing::Admitted));
        back(&masters[2]);
    }
}

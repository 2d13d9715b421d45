//! What the look behind each acquire costs, where a server does not push that its data is gone:
//! the same handle over two users of the same five masters, one that may track and one that may
//! not.

mod support;

use std::time::{Duration, Instant};

use futures::future::try_join_all;
use redlock_quorum::Redlock;
use redlock_testkit::{RedisServer, RedisServers};
use tokio::runtime::Builder;

use support::stats::{Rows, cpu, median, server_cpu};

const ROUNDS: usize = 9;
const ROUND: Duration = Duration::from_millis(500);
/// The columns of its table.
const COLUMNS: [&str; 3] = ["with tracking", "looks behind", "looks / tracking"];

/// What one lock and its release cost in one round.
struct Cost {
    wall: f64,
    client: f64,
    server: f64,
}

fn main() -> anyhow::Result<()> {
    let mut rows = Rows::begin("looks", COLUMNS)?;
    let servers = RedisServers::start(5)?;
    let runtime = Builder::new_current_thread().enable_all().build()?;
    for server in servers.iter() {
        let user = ["ACL", "SETUSER", "mute", "on", ">p", "~*", "+@all", "-client|tracking"];
        server.command(&user)?;
    }
    let tracking = Redlock::connect(servers.urls())?;
    let mute = servers.iter().map(|server| format!("redis://mute:p@{}", server.name()));
    let looking = Redlock::connect(mute)?;
    for tasks in [1, 64] {
        let mut rounds: [Vec<Cost>; 2] = Default::default();
        for round in 0..=ROUNDS {
            for (redlock, costs) in [&tracking, &looking].into_iter().zip(&mut rounds) {
                let cost = runtime.block_on(race(redlock, &servers, tasks))?;
                // The first one warms up.
                costs.extend((round > 0).then_some(cost));
            }
        }
        let figures: [Figure; 3] = [
            ("time a lock", |cost| cost.wall),
            ("client CPU a lock", |cost| cost.client),
            ("server CPU a lock, all five", |cost| cost.server),
        ];
        for (what, figure) in figures {
            report(&mut rows, &format!("{tasks} tasks: {what}"), &rounds, figure)?;
        }
    }
    Ok(())
}

/// What is compared, and how it is computed from the cost of a round.
type Figure = (&'static str, fn(&Cost) -> f64);

/// Tasks that take and release keys of their own for a while.
async fn race(redlock: &Redlock, servers: &[RedisServer], tasks: usize) -> anyhow::Result<Cost> {
    let (before, begun, used) = (server_cpu(servers)?, Instant::now(), cpu());
    let task = async |task: usize| {
        let mut locks = 0;
        while begun.elapsed() < ROUND {
            redlock.try_lock(format!("looks:{task}")).await?.release().await?;
            locks += 1;
        }
        anyhow::Ok(locks)
    };
    let locks: u32 = try_join_all((0..tasks).map(task)).await?.into_iter().sum();
    let (wall, client) = (begun.elapsed(), cpu() - used);
    let each = |time: f64| time * 1e6 / f64::from(locks);
    let server = server_cpu(servers)? - before;
    let (wall, client) = (wall.as_secs_f64(), client.as_secs_f64());
    Ok(Cost { wall: each(wall), client: each(client), server: each(server) })
}

/// Medians of the rounds, and that of the ratios of each pair.
fn report(
    rows: &mut Rows,
    what: &str,
    rounds: &[Vec<Cost>; 2],
    figure: fn(&Cost) -> f64,
) -> anyhow::Result<()> {
    let [tracking, looking] = rounds.each_ref().map(|costs| costs.iter().map(figure));
    let pairs = tracking.clone().zip(looking.clone());
    let ratios: Vec<f64> = pairs.map(|(tracking, looking)| looking / tracking).collect();
    let of = |figures: Vec<f64>| median(&figures).unwrap_or(f64::NAN);
    let (tracking, looking) = (of(tracking.collect()), of(looking.collect()));
    let ratio = format!("{:.2}", of(ratios));
    rows.row(what, [format!("{tracking:.1} us"), format!("{looking:.1} us"), ratio])
}

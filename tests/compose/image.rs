//! The image redlock:local, on these masters. `make test-compose` builds it.

use std::path::Path;
use std::process::{Command, Output};

use redlock_testkit::lab::poll;

use crate::lab::patient;
use crate::masters::Masters;

/// A container of the image, on the network of this machine, with these words for docker and for
/// the command.
fn container(masters: &Masters, docker: &[&str], words: &[&str]) -> Output {
    let nodes = format!("REDLOCK_NODES={}", masters.urls().join(","));
    let mut run = Command::new("docker");
    run.args(["run", "--network=host", "--env", &nodes, "--env", "REDLOCK_NODE_TIMEOUT=2s"]);
    run.args(docker).arg("redlock:local").args(words).output().unwrap()
}

fn docker<const N: usize>(words: [&str; N]) -> String {
    let output = Command::new("docker").args(words).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn image_runs_a_command_as_process_1_without_a_list_of_users() {
    let masters = Masters::take();
    let run = |words: &[&str]| container(&masters, &["--rm", "--read-only"], words);
    let held = run(&["run", "image", "--pass-nodes", "--", "/redlock", "status", "image"]);
    let printed = String::from_utf8_lossy(&held.stdout).into_owned();
    assert!(held.status.success(), "{held:?}");
    let label =
        printed.split("/65532@").nth(1).and_then(|rest| rest.split([',', ' ', '\n']).next());
    assert!(label.is_some_and(|label| label.ends_with(":1")), "{printed}");
    // The exit code of the command: the lock is free.
    let free = run(&["run", "image", "--pass-nodes", "--", "/redlock", "status", "another"]);
    assert_eq!(free.status.code(), Some(1), "{free:?}");
    assert_eq!(masters.values("image"), vec![None; masters.len()]);
}

/// A container that is removed when the test ends.
struct Waiting(String);

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(Command::new("docker").args(["rm", "--force", &self.0]).output());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn image_reports_its_health_and_ends_at_sigterm() {
    let masters = Masters::take();
    let redlock = patient(&masters);
    let guard = redlock.lock("health").await.unwrap();
    let started = container(
        &masters,
        &["--detach", "--health-interval=1s"],
        &["acquire", "health", "--wait", "forever"],
    );
    assert!(started.status.success(), "{started:?}");
    let waiting = Waiting(String::from_utf8(started.stdout).unwrap().trim().to_owned());
    poll("the container is healthy", || {
        let health = docker(["inspect", "--format", "{{.State.Health.Status}}", &waiting.0]);
        (health == "healthy").then_some(())
    });
    docker(["stop", "-t", "20", &waiting.0]);
    let code = docker(["inspect", "--format", "{{.State.ExitCode}}", &waiting.0]);
    assert_eq!(code, "143", "{}", docker(["logs", &waiting.0]));
    guard.release().await.unwrap();
}

#[test]
fn job_of_the_compose_file_runs_under_its_lock() {
    let masters = Masters::take();
    let has_plugin = Command::new("docker").args(["compose", "version"]).output();
    let mut compose = match has_plugin {
        Ok(output) if output.status.success() => {
            let mut docker = Command::new("docker");
            docker.arg("compose");
            docker
        }
        _ => Command::new("docker-compose"),
    };
    compose.args(["--profile", "job", "run", "--rm", "-T", "job"]);
    let output = compose.current_dir(Path::new("..")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        printed.contains("compose-job is held by ") && printed.contains("/65532@"),
        "{printed}"
    );
    assert_eq!(masters.values("compose-job"), vec![None; masters.len()]);
}

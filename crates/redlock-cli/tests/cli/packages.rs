//! What packages install: the pages and completions, the configuration file and the units.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use redlock_testkit::RedisServers;

use crate::support::{Answer, NODE_TIMEOUT, Scratch, answer_of, bare, undisturbed};

const BINARY: &str = env!("CARGO_BIN_EXE_redlock");
const MANIFEST: &str = include_str!("../../Cargo.toml");
const CONFIG: &str = include_str!("../../packaging/config");
const SERVICE: &str = include_str!("../../packaging/redlock@.service");
const TIMER: &str = include_str!("../../packaging/redlock@.timer");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The subcommands that the help lists.
fn subcommands() -> BTreeSet<String> {
    let help = answer_of(&mut bare(["--help"])).out;
    let list = help.split("\nCommands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let names = list.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty() && *name != "help").map(String::from).collect()
}

/// Installs below a prefix, as `make install` does, and returns the files.
fn install(prefix: &Path) -> BTreeSet<String> {
    let mut script = Command::new(root().join("scripts/install.sh"));
    let answer = answer_of(script.arg(BINARY).arg(prefix).env_remove("DESTDIR"));
    let below = |line: &str| line.strip_prefix(&format!("{}/", prefix.display())).map(String::from);
    answer.success().lines().map(|line| below(line).unwrap()).collect()
}

#[test]
fn install_writes_the_command_its_pages_and_completions() {
    let scratch = Scratch::new("install");
    let prefix = scratch.file("a prefix");
    let mut expected: BTreeSet<String> = [
        "bin/redlock",
        "share/man/man1/redlock.1",
        "share/bash-completion/completions/redlock",
        "share/zsh/site-functions/_redlock",
        "share/fish/vendor_completions.d/redlock.fish",
    ]
    .map(String::from)
    .into();
    let pages = subcommands().into_iter().map(|name| format!("share/man/man1/redlock-{name}.1"));
    expected.extend(pages);
    assert!(expected.len() > 10, "{expected:?}");
    assert_eq!(install(&prefix), expected);

    for file in &expected {
        let is_program = file.starts_with("bin/");
        let mode = fs::metadata(prefix.join(file)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if is_program { 0o755 } else { 0o644 }, "{file}");
        let text = fs::read(prefix.join(file)).unwrap();
        assert!(String::from_utf8_lossy(&text).contains("redlock"), "{file}");
    }
    let version = answer_of(undisturbed(prefix.join("bin/redlock").to_str().unwrap()).arg("-V"));
    assert_eq!(version.success(), concat!("redlock ", env!("CARGO_PKG_VERSION")));
}

/// The value of a setting of a unit.
fn setting<'a>(unit: &'a str, name: &str) -> &'a str {
    let line = unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    line.unwrap_or_else(|| panic!("{name}"))
}

/// Runs the service for an instance, with the job and the command where they are in the test.
fn start(jobs: &Path, servers: &RedisServers, instance: &str, options: &str) -> Answer {
    let line = setting(SERVICE, "ExecStart").replace("%i", instance);
    let line = line.replace("/etc/redlock/jobs", jobs.to_str().unwrap());
    let words = line.split(' ').flat_map(|word| match word {
        "$OPTIONS" => options.split_whitespace().collect(),
        "/usr/bin/redlock" => vec![BINARY],
        word => vec![word],
    });
    let words: Vec<_> = words.collect();
    let mut command = undisturbed(words[0]);
    command.env_clear().env("REDLOCK_CONFIG", "/dev/null").env("PATH", "/usr/bin:/bin");
    command
        .env("REDLOCK_NODE_TIMEOUT", NODE_TIMEOUT)
        .env("REDLOCK_NODES", servers.urls().join(","));
    answer_of(command.args(&words[1..]))
}

#[test]
fn the_packaged_service_runs_a_job_under_the_lock_of_its_name() {
    let servers = RedisServers::start(3).unwrap();
    let scratch = Scratch::new("service");
    let job = scratch.file("report");
    fs::write(&job, "#!/bin/sh\necho \"$REDLOCK_KEY ran\"\n").unwrap();
    fs::set_permissions(&job, fs::Permissions::from_mode(0o755)).unwrap();
    let run = |options| start(&scratch.file(""), &servers, "report", options);

    assert_eq!(setting(SERVICE, "Environment"), "OPTIONS=");
    assert_eq!(run("").success(), "report ran");
    // The options that its comment recommends.
    let comment = SERVICE.split("\"OPTIONS=").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(run(comment).success(), "report ran");
    let skipped = run(comment);
    assert_eq!((skipped.code, skipped.out.as_str()), (0, ""), "{skipped:?}");
    assert_eq!(setting(SERVICE, "KillMode"), "mixed", "the job is signalled once");
    assert_eq!(setting(SERVICE, "SuccessExitStatus"), "75");
}

/// The packaged units, with a program that exists on this machine.
#[test]
fn systemd_accepts_the_packaged_units() {
    let scratch = Scratch::new("units");
    let service = SERVICE.replace("/usr/bin/redlock", BINARY);
    fs::write(scratch.file("redlock@.service"), service).unwrap();
    fs::write(scratch.file("redlock@.timer"), TIMER).unwrap();
    let mut analyze = Command::new("systemd-analyze");
    analyze.args(["verify", "--man=no", "./redlock@report.service", "./redlock@report.timer"]);
    match analyze.current_dir(scratch.file("")).output() {
        Ok(output) => assert_eq!(Answer::from(output).success(), ""),
        Err(error) => println!("skipped systemd-analyze: {error}"),
    }
}

/// A host that made up for a missed run after the period of `--once-in` would repeat the job.
#[test]
fn packaged_timer_starts_all_hosts_at_the_same_time() {
    assert_eq!(setting(TIMER, "OnCalendar"), "daily");
    let delays = ["Persistent=", "RandomizedDelaySec="];
    let is_late = |line: &str| delays.iter().any(|delay| line.starts_with(delay));
    assert!(!TIMER.lines().any(is_late), "{TIMER}");
}

#[test]
fn the_packaged_configuration_has_comments_only() {
    assert!(CONFIG.lines().all(|line| line.starts_with('#')), "{CONFIG}");
    let scratch = Scratch::new("packaged-config");
    let password = scratch.file("password");
    fs::write(&password, "secret\n").unwrap();
    let config = CONFIG.replace("/etc/redlock/password", password.to_str().unwrap());
    // This host has none of the other files, and an empty value counts as unset. An unknown name does not.
    let without_file = |line: &str| match line.split_once("/etc/") {
        Some((name, _)) => name.to_owned(),
        None => line.to_owned(),
    };
    let settings = config.lines().filter(|line| line.starts_with("#REDLOCK_"));
    let settings: Vec<_> = settings.map(|line| without_file(&line[1..])).collect();
    assert!(settings.len() > 4, "{settings:?}");
    for text in [CONFIG.to_owned(), settings.join("\n")] {
        let file = scratch.file("config");
        fs::write(&file, &text).unwrap();
        let mut command = bare(["acl", "--node", "redis://127.0.0.1:1"]);
        let answer = answer_of(command.env("REDLOCK_CONFIG", &file));
        assert!(!answer.err.contains("packaged-config"), "no fault of the file: {answer:?}");
        assert_eq!(answer.code, 0, "{answer:?}");
    }
}

/// Source, place and mode of each file of the Debian package.
fn assets() -> Vec<[String; 3]> {
    let list = MANIFEST.split("\nassets = [\n").nth(1).unwrap().split("\n]\n").next().unwrap();
    let words =
        |line: &str| line.split('"').skip(1).step_by(2).map(String::from).collect::<Vec<_>>();
    list.lines().map(|line| words(line).try_into().unwrap()).collect()
}

#[test]
fn the_debian_package_has_units_and_a_configuration_file() {
    let assets = assets();
    for [source, _, _] in &assets {
        let built = source.strip_prefix("target/release/");
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
        assert!(built.is_some() || file.exists(), "{source}");
    }
    let mode = |place: &str| {
        let at = |[source, to, _]: &&[String; 3]| {
            to == place || format!("{to}{}", source.rsplit('/').next().unwrap()) == place
        };
        assets.iter().find(at).unwrap_or_else(|| panic!("{place}: {assets:?}"))[2].as_str()
    };
    assert_eq!(mode("usr/bin/redlock"), "755");
    assert_eq!(mode("etc/redlock/config"), "644");
    assert!(MANIFEST.contains("\nconf-files = [\"/etc/redlock/config\"]\n"));
    for unit in ["redlock@.service", "redlock@.timer"] {
        assert_eq!(mode(&format!("usr/lib/systemd/system/{unit}")), "644");
    }
}

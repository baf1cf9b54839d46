//! The configuration file, and who wins.

use crate::support::Sandbox;

fn without_store_variables(sandbox: &Sandbox, arguments: &[&str]) -> std::process::Command {
    let mut command = sandbox.command(arguments);
    command.env_remove("ONEFOLD_REPOSITORY");
    command.env_remove("ONEFOLD_PASSWORD");
    command
}

#[test]
fn a_profile_names_store_password_sources_and_policy() {
    let sandbox = Sandbox::empty();
    sandbox.write("home/.config/onefold/password", b"from the profile\n");
    sandbox.write("source/keep", b"k");
    sandbox.write("source/drop.tmp", b"d");
    let config = format!(
        "[profile.default]\nrepository = '{}'\npassword-file = 'password'\nmemory = '64MiB'\n\
         [profile.default.backup]\npaths = ['{}']\nexclude = ['*.tmp']\ntags = ['nightly']\n\
         host = 'configured'\n\
         [profile.default.forget]\nkeep-last = 1\n\
         [profile.other]\nrepository = '{}'\npassword-command = 'echo other'\n",
        sandbox.arg("profile-store"),
        sandbox.arg("source"),
        sandbox.arg("other-store"),
    );
    sandbox.write("home/.config/onefold/config.toml", config.as_bytes());
    let run =
        |arguments: &[&str]| sandbox.run_command(without_store_variables(&sandbox, arguments));
    run(&["init"]).expect(0);
    assert!(sandbox.path("profile-store/config").exists());
    run(&["backup"]).expect(0);
    let listed = run(&["ls"]).expect(0).stdout;
    assert!(listed.contains("keep") && !listed.contains("drop"), "{listed}");
    run(&["backup", "--tag", "manual", "--host", "given"]).expect(0);
    let shown = run(&["--json", "snapshots"]).expect(0).messages("snapshot");
    assert_eq!(shown[0]["tags"][0], "nightly");
    assert_eq!(shown[0]["host"], "configured");
    assert_eq!(shown[1]["tags"][0], "manual");
    assert_eq!(shown[1]["host"], "given");
    run(&["forget", "--group-by", ""]).expect(0);
    assert_eq!(run(&["--json", "snapshots"]).messages("snapshot").len(), 1);
    run(&["--profile", "other", "init"]).expect(0);
    run(&["--profile", "other", "snapshots"]).expect(0);
    let missing = run(&["--profile", "third", "snapshots"]).expect(1);
    assert!(missing.stderr.contains("default, other"), "{}", missing.stderr);
}

#[test]
fn options_win_over_environment_over_profile() {
    let sandbox = Sandbox::with_store();
    sandbox.write("config.toml", b"[profile.default]\nrepository = 'from-profile'\n");
    let config = sandbox.arg("config.toml");
    let named = |run: crate::support::Run, name: &str| {
        assert!(run.stderr.contains(name), "{name} in {}", run.stderr);
    };
    let command = without_store_variables(&sandbox, &["--config", &config, "snapshots"]);
    named(sandbox.run_command(command).expect(10), "from-profile");
    let mut command = sandbox.command(&["--config", &config, "snapshots"]);
    command.env("ONEFOLD_REPOSITORY", "from-environment");
    named(sandbox.run_command(command).expect(10), "from-environment");
    let arguments = ["--config", &config, "-r", "from-option", "snapshots"];
    named(sandbox.run(&arguments).expect(10), "from-option");
}

#[test]
fn misspelt_keys_are_errors() {
    let sandbox = Sandbox::with_store();
    sandbox.write("config.toml", b"[profile.default.forget]\nkeep-dayly = 3\n");
    let config = sandbox.arg("config.toml");
    let run = sandbox.run(&["--config", &config, "snapshots"]).expect(1);
    assert!(run.stderr.contains("keep-dayly"), "{}", run.stderr);
}

#[test]
fn passwords_come_from_where_they_are_named() {
    let sandbox = Sandbox::empty();
    sandbox.run(&["init"]).expect(0);
    sandbox.write("right", crate::support::PASSWORD.as_bytes());
    let right = sandbox.arg("right");
    let print = format!("cat '{right}'");
    for (name, value) in
        [("ONEFOLD_PASSWORD_FILE", right.as_str()), ("ONEFOLD_PASSWORD_COMMAND", print.as_str())]
    {
        let mut command = sandbox.command(&["snapshots"]);
        command.env_remove("ONEFOLD_PASSWORD").env(name, value);
        sandbox.run_command(command).expect(0);
        // The first that is given counts.
        let mut command = sandbox.command(&["snapshots"]);
        command.env("ONEFOLD_PASSWORD", "wrong").env(name, value);
        sandbox.run_command(command).expect(12);
    }
    let mut command = sandbox.command(&["--password-command", &print, "snapshots"]);
    command.env("ONEFOLD_PASSWORD", "wrong");
    sandbox.run_command(command).expect(0);
    let missing = ["--password-file", "missing", "snapshots"];
    sandbox.run(&missing).expect(1);
    let both = ["--password-file", &right, "--password-command", "x", "snapshots"];
    sandbox.run(&both).expect(1);
}

//! Where a store may be, and what is restored around it.

use crate::support::Sandbox;

#[test]
fn r82_a_store_elsewhere_is_refused_and_no_directory_made_of_its_name() {
    let sandbox = Sandbox::empty();
    sandbox.write("far.toml", b"[profile.far]\nrepository='s3:bucket'");
    let before = names(&sandbox);
    for name in ["sftp:user@host:/x", "s3:bucket/x", "rest:https://h/x", "file:///x", "u@h:x"] {
        for arguments in [["-r", name, "init"], ["-r", name, "snapshots"]] {
            let run = sandbox.run(&arguments).expect(1);
            assert!(run.stderr.contains("local directory"), "{}", run.stderr);
        }
        let mut command = sandbox.command(&["backup", "home"]);
        command.env("ONEFOLD_REPOSITORY", name);
        let run = sandbox.run_command(command).expect(1);
        assert!(run.stderr.contains(name), "{}", run.stderr);
    }
    let mut command = sandbox.command(&["--config", "far.toml", "--profile", "far", "init"]);
    command.env_remove("ONEFOLD_REPOSITORY");
    let run = sandbox.run_command(command).expect(1);
    assert!(run.stderr.contains("profile 'far'"), "{}", run.stderr);
    assert!(run.stderr.contains("local directory"), "{}", run.stderr);
    assert_eq!(names(&sandbox), before);
    sandbox.run(&["-r", "./sftp:x", "init"]).expect(0);
    assert!(sandbox.path("sftp:x/config").exists());
}

fn names(sandbox: &Sandbox) -> Vec<std::ffi::OsString> {
    let entries = std::fs::read_dir(sandbox.path("")).unwrap();
    entries.map(|entry| entry.unwrap().file_name()).collect()
}

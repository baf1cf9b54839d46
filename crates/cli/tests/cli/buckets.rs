//! A store in a bucket, from `init` to `gc`: what a directory does, a bucket does, whoever's it is.

use crate::collecting::random_bytes;
use crate::support::{Run, Sandbox};
use onefold_remote::gateway::{
    ACCESS, AZURITE_ACCOUNT, AZURITE_KEY, Azurite, BUCKET, CLIENT, Gateway, SECRET,
};
use onefold_remote::google_server::{GoogleServer, TOKEN};
use std::fs;

/// A store in a bucket, and what the program finds around it.
struct Bucket {
    sandbox: Sandbox,
    store: String,
    variables: Vec<(&'static str, String)>,
}

impl Bucket {
    fn new(store: String, variables: &[(&'static str, &str)]) -> Self {
        let owned = |(name, value): &(&'static str, &str)| (*name, (*value).to_owned());
        Self { sandbox: Sandbox::empty(), store, variables: variables.iter().map(owned).collect() }
    }

    fn on(gateway: &Gateway) -> Self {
        let keys = [("AWS_ACCESS_KEY_ID", ACCESS), ("AWS_SECRET_ACCESS_KEY", SECRET)];
        Self::new(gateway.store("hosts/one"), &keys)
    }

    fn run(&self, arguments: &[&str]) -> Run {
        self.run_on(&self.store, arguments)
    }

    fn run_on(&self, store: &str, arguments: &[&str]) -> Run {
        let mut command = self.sandbox.command(arguments);
        command.env("ONEFOLD_REPOSITORY", store);
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        self.sandbox.run_command(command)
    }

    /// Bytes of all objects of the store.
    fn size(&self) -> u64 {
        let told = self.run(&["--json", "stats"]).expect(0).message("statistics");
        told["bytes_stored"].as_u64().unwrap()
    }
}

#[test]
fn a_store_in_a_bucket_does_what_one_in_a_directory_does() {
    let Some(gateway) = Gateway::start().unwrap() else { return };
    let place = does_what_a_directory_does(&Bucket::on(&gateway));
    assert_eq!((&place["service"], &place["path_style"]), (&"s3".into(), &true.into()));
}

/// The policy that the documents give to clients, for a bucket and a prefix.
fn documented_policy(prefix: &str) -> String {
    let documents = include_str!("../../../../docs/CONFIG.md");
    let (_, behind) = documents.split_once("A policy for clients").unwrap();
    let (_, behind) = behind.split_once("```json").unwrap();
    let (policy, _) = behind.split_once("```").unwrap();
    let mut policy: serde_json::Value =
        serde_json::from_str(&policy.replace("BUCKET", BUCKET).replace("PREFIX", prefix)).unwrap();
    for statement in policy["Statement"].as_array_mut().unwrap() {
        statement["Principal"] = CLIENT.into();
    }
    policy.to_string()
}

#[test]
fn r158_a_client_with_the_documented_policy_appends_and_no_more() {
    let Some(gateway) = Gateway::start().unwrap() else { return };
    let owner = Bucket::on(&gateway);
    gateway.set_policy(&documented_policy("hosts/one")).unwrap();
    let keys = [("AWS_ACCESS_KEY_ID", CLIENT), ("AWS_SECRET_ACCESS_KEY", SECRET)];
    let client = Bucket { sandbox: owner.sandbox, ..Bucket::new(owner.store.clone(), &keys) };
    let owner = |arguments: &[&str]| {
        let mut command = client.sandbox.command(arguments);
        command.env("ONEFOLD_REPOSITORY", format!("{}&checksum=sha256", owner.store));
        command.envs(owner.variables.iter().map(|(name, value)| (name, value)));
        client.sandbox.run_command(command)
    };
    owner(&["init", "--kdf-memory", "8MiB", "--kdf-passes", "1"]).expect(0);
    // More than there may be runs, which are merged then; those that it may not delete stay.
    for version in 0..20_u8 {
        client.sandbox.write("source/file", &random_bytes(version.into(), 50_000));
        client.run(&["backup", "source"]).expect(0);
    }
    client.run(&["restore", "latest", "--target", "restored"]).expect(0);
    client.run(&["hold", "latest"]).expect(0);
    client.run(&["forget", "latest~1"]).expect(0);
    for refused in
        [&["gc", "--wait", "0s"][..], &["forget", "--final", "latest~2"], &["key", "rotate"]]
    {
        let said = client.run(refused).expect(11).stderr;
        assert!(said.contains("does not permit it"), "{said}");
    }
    let all = owner(&["--json", "snapshots", "--all"]).expect(0).messages("snapshot");
    let hidden = all.iter().find(|one| one["hidden"] == true).unwrap();
    owner(&["undelete", hidden["id"].as_str().unwrap()]).expect(0);
    owner(&["gc", "--wait", "0s", "--space-goal", "100%"]).expect(0);
    assert_eq!(owner(&["--json", "snapshots"]).expect(0).messages("snapshot").len(), 20);
    owner(&["check", "--read-data"]).expect(0);
}

#[test]
fn a_store_of_google_does_what_one_in_a_directory_does() {
    let server = GoogleServer::start().unwrap();
    let bucket = Bucket::new(server.store("hosts/one"), &[("GOOGLE_ACCESS_TOKEN", TOKEN)]);
    let place = does_what_a_directory_does(&bucket);
    assert_eq!((&place["service"], &place["region"]), (&"google".into(), &().into()));
    assert!(!server.objects().is_empty());
}

#[test]
fn a_store_of_azure_does_what_one_in_a_directory_does() {
    let Some(server) = Azurite::start().unwrap() else { return };
    let key = [("AZURE_STORAGE_ACCOUNT_KEY", AZURITE_KEY)];
    let place = does_what_a_directory_does(&Bucket::new(server.store("hosts/one"), &key));
    assert_eq!((&place["service"], &place["account"]), (&"azure".into(), &AZURITE_ACCOUNT.into()));
}

/// What `info` says of the place in the end.
fn does_what_a_directory_does(bucket: &Bucket) -> serde_json::Value {
    let (sandbox, run) = (&bucket.sandbox, |arguments: &[&str]| bucket.run(arguments));
    assert!(run(&["snapshots"]).expect(10).stderr.contains("onefold init"));
    let made = run(&["init", "--kdf-memory", "8MiB", "--kdf-passes", "1"]).expect(0);
    let (shown, _) = bucket.store.split_once('?').unwrap();
    assert!(made.stdout.contains(shown), "{}", made.stdout);
    run(&["init"]).expect(1);
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at ^ (at >> 7) ^ (at >> 13)) as u8).collect();
    sandbox.write("source/large", &bytes);
    sandbox.write("source/small", b"one");
    run(&["backup", "source"]).expect(0);
    sandbox.write("source/small", b"two");
    fs::remove_file(sandbox.path("source/large")).unwrap();
    run(&["backup", "source"]).expect(0);
    let listed = run(&["--json", "snapshots"]).expect(0).messages("snapshot");
    assert_eq!(listed.len(), 2);
    run(&["check", "--read-data"]).expect(0);
    let first = listed[0]["id"].as_str().unwrap();
    run(&["restore", first, "--target", "restored"]).expect(0);
    assert!(fs::read(sandbox.path("restored/source/large")).unwrap() == bytes);
    run(&["hold", "latest"]).expect(0);
    run(&["release", "latest"]).expect(0);
    run(&["forget", "--keep-last", "1", "--final"]).expect(0);
    let before = bucket.size();
    run(&["gc", "--wait", "0s"]).expect(0);
    assert!(bucket.size() < before, "nothing was freed");
    run(&["check", "--read-data"]).expect(0);
    run(&["restore", "latest", "--target", "again"]).expect(0);
    assert_eq!(fs::read(sandbox.path("again/source/small")).unwrap(), b"two");
    run(&["--read-only", "backup", "source"]).expect(11);
    run(&["--read-only", "snapshots"]).expect(0);
    let told = run(&["--json", "info"]).expect(0).message("info");
    let place = &told["place"];
    assert_eq!((&told["kind"], &place["credentials"]), (&"bucket".into(), &"variables".into()));
    for trial in ["conditional_put", "ranged_reads", "lists_at_once", "deletes"] {
        assert_eq!(place[trial], "yes", "{trial}: {told}");
    }
    let untried = run(&["--json", "--read-only", "info"]).expect(0).message("info");
    assert!(untried["place"]["deletes"].is_null(), "{untried}");
    run(&["check"]).expect(0);
    place.clone()
}

#[test]
fn wrong_credentials_and_a_server_that_is_gone_are_said_and_have_their_codes() {
    let Some(gateway) = Gateway::start().unwrap() else { return };
    let mut bucket = Bucket::on(&gateway);
    bucket.variables[1].1 = "wrong".to_owned();
    let wrong = bucket.run(&["init"]).expect(11);
    assert!(wrong.stderr.contains("AWS_ACCESS_KEY_ID"), "{}", wrong.stderr);
    bucket.variables[1].1 = SECRET.to_owned();
    let elsewhere = bucket.store.replace("s3://bucket/", "s3://missing/");
    let missing = bucket.run_on(&elsewhere, &["init"]).expect(10);
    assert!(missing.stderr.contains("no such bucket"), "{}", missing.stderr);
    // A profile names a bucket as it is.
    let text = format!("[profile.far]\nrepository = '{}'\n", bucket.store);
    bucket.sandbox.write("far.toml", text.as_bytes());
    let arguments = ["--config", "far.toml", "--profile", "far", "snapshots"];
    let mut command = bucket.sandbox.command(&arguments);
    command.env_remove("ONEFOLD_REPOSITORY");
    command.envs(bucket.variables.iter().map(|(name, value)| (name, value)));
    let none = bucket.sandbox.run_command(command).expect(10);
    assert!(none.stderr.contains("s3://bucket/hosts/one"), "{}", none.stderr);
    drop(gateway);
}

#[test]
fn what_google_and_azure_refuse_has_the_same_codes_and_shows_no_secret() {
    let google = GoogleServer::start().unwrap();
    let azure = Azurite::start().unwrap();
    let google = Bucket::new(google.store("one"), &[("GOOGLE_ACCESS_TOKEN", TOKEN)]);
    let key = [("AZURE_STORAGE_ACCOUNT_KEY", AZURITE_KEY)];
    let azure = azure.as_ref().map(|server| Bucket::new(server.store("one"), &key));
    for mut bucket in [Some(google), azure].into_iter().flatten() {
        let variable = bucket.variables[0].0;
        let elsewhere = bucket.store.replace("://bucket/", "://missing/");
        let missing = bucket.run_on(&elsewhere, &["init"]).expect(10);
        assert!(missing.stderr.contains("no such bucket"), "{}", missing.stderr);
        let option = format!("{}&sas=secret", bucket.store);
        let wrong = bucket.run_on(&option, &["init"]).expect(1);
        assert!(wrong.stderr.contains("'sas' is not known"), "{}", wrong.stderr);
        bucket.variables[0].1 = "d3Jvbmc=".to_owned();
        let refused = bucket.run(&["init"]).expect(11);
        assert!(refused.stderr.contains(variable), "{}", refused.stderr);
        for said in [missing, wrong, refused] {
            for secret in ["d3Jvbmc", TOKEN, AZURITE_KEY, "secret"] {
                assert!(!said.stderr.contains(secret), "{}", said.stderr);
            }
        }
    }
}

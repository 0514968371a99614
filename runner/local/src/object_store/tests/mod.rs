//! Tests of the endpoint through the unmodified AWS SDK for S3. [`raw`] sends requests that the SDK
//! never sends.

mod raw;

use std::{collections::BTreeMap, fs, path::Path};

use aws_credential_types::Credentials;
use aws_sdk_s3::{
    Client,
    config::{BehaviorVersion, Region},
    error::{ProvideErrorMetadata, SdkError},
    primitives::ByteStream,
    types::{CompletedMultipartUpload, CompletedPart, Delete, ObjectIdentifier},
};
use futures::future::join_all;
use percent_encoding::percent_decode_str;
use server::gate::{AllowList, BoundListener};
use tempfile::TempDir;

use super::*;

const BUCKET: &str = "archive";

struct Fixture {
    folder: TempDir,
    endpoint: Endpoint,
    client: Client,
}

impl Fixture {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (endpoint, client) = serve(&folder.path().join("s3")).await;
        client.create_bucket().bucket(BUCKET).send().await.unwrap();
        Self { folder, endpoint, client }
    }

    fn bucket(&self) -> PathBuf {
        self.folder.path().join("s3").join(BUCKET)
    }

    async fn put(&self, key: &str, body: &str) -> Result<String, String> {
        let body = ByteStream::from(body.as_bytes().to_vec());
        let put = self.client.put_object().bucket(BUCKET).key(key).body(body);
        Ok(put.send().await.map_err(code)?.e_tag.unwrap())
    }

    async fn put_if_absent(&self, key: &str, body: &str) -> Result<String, String> {
        let body = ByteStream::from(body.as_bytes().to_vec());
        let put = self.client.put_object().bucket(BUCKET).key(key).body(body).if_none_match("*");
        Ok(put.send().await.map_err(code)?.e_tag.unwrap())
    }

    async fn get(&self, key: &str) -> Result<String, String> {
        let got = self.client.get_object().bucket(BUCKET).key(key).send().await.map_err(code)?;
        let bytes = got.body.collect().await.unwrap().into_bytes();
        Ok(String::from_utf8(bytes.to_vec()).unwrap())
    }

    async fn keys(&self) -> Vec<String> {
        let listed = self.client.list_objects_v2().bucket(BUCKET).send().await.unwrap();
        listed.contents().iter().map(|object| object.key().unwrap().to_owned()).collect()
    }
}

async fn serve(root: &Path) -> (Endpoint, Client) {
    let store = ObjectStore::open(root).unwrap();
    let bound = BoundListener::new("S3 endpoint", "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let endpoint = Endpoint::start(store, bound, AllowList::default(), "eu-west-1");
    let config = aws_sdk_s3::Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .http_client(client::https::client())
        .region(Region::new("eu-west-1"))
        .credentials_provider(Credentials::new("any", "credentials", None, None, "test"))
        .endpoint_url(endpoint.url())
        .build();
    (endpoint, Client::from_conf(config))
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn code<E: ProvideErrorMetadata, R: std::fmt::Debug>(error: SdkError<E, R>) -> String {
    error.code().map_or_else(|| format!("{:?}", error.raw_response()), str::to_owned)
}

/// Returns every file below a folder with its content.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap().to_str().unwrap().to_owned();
                found.insert(name, fs::read(path).unwrap());
            }
        }
    }
    found
}

#[tokio::test]
async fn what_was_put_is_a_plain_file_and_reads_back() {
    let fixture = Fixture::start().await;
    let key = "votes/year=2021/part-0.parquet";
    let put =
        fixture.client.put_object().bucket(BUCKET).key(key).content_type("application/parquet");
    let put = put.metadata("rows", "17490").metadata("who", "na\u{ef}ve");
    let put = put.body(ByteStream::from_static(b"0123456789")).send().await.unwrap();
    assert_eq!(put.e_tag(), Some("\"781e5e245d69b566979b86e28d23f2c7\""));
    assert!(put.checksum_crc32().is_some(), "the SDK's default checksum");
    assert_eq!(fs::read(fixture.bucket().join(key)).unwrap(), b"0123456789");

    let got = fixture.client.get_object().bucket(BUCKET).key(key).send().await.unwrap();
    assert_eq!(got.content_type(), Some("application/parquet"));
    assert_eq!(got.e_tag(), put.e_tag());
    assert_eq!(got.checksum_crc32(), put.checksum_crc32());
    let metadata = got.metadata().unwrap();
    // S3 returns non-ASCII text as RFC 2047 words, which the SDK does not decode.
    assert_eq!((&*metadata["rows"], &*metadata["who"]), ("17490", "=?UTF-8?B?bmHDr3Zl?="));
    assert_eq!(got.body.collect().await.unwrap().into_bytes(), &b"0123456789"[..]);

    let head = fixture.client.head_object().bucket(BUCKET).key(key).send().await.unwrap();
    assert_eq!((head.content_length(), head.e_tag()), (Some(10), put.e_tag()));
    assert_eq!(fixture.put("empty", "").await.unwrap(), "\"d41d8cd98f00b204e9800998ecf8427e\"");
    assert_eq!(fixture.get("empty").await.unwrap(), "");
    assert_eq!(fixture.get("absent").await.unwrap_err(), "NoSuchKey");
    assert_eq!(fixture.get("votes").await.unwrap_err(), "NoSuchKey", "a folder is no object");
    assert_eq!(fixture.get("empty/below").await.unwrap_err(), "NoSuchKey");
}

#[tokio::test]
async fn ranges_and_conditions_of_reads() {
    let fixture = Fixture::start().await;
    let etag = fixture.put("k", "0123456789").await.unwrap();
    let get = || fixture.client.get_object().bucket(BUCKET).key("k");
    let ranges = [
        ("bytes=0-3", "0123", "bytes 0-3/10"),
        ("bytes=8-", "89", "bytes 8-9/10"),
        ("bytes=-3", "789", "bytes 7-9/10"),
        ("bytes=5-100", "56789", "bytes 5-9/10"),
    ];
    for (range, expected, content_range) in ranges {
        let got = get().range(range).send().await.unwrap();
        assert_eq!(got.content_range(), Some(content_range));
        assert_eq!(got.body.collect().await.unwrap().into_bytes(), expected);
    }
    assert_eq!(get().range("bytes=10-").send().await.map_err(code).unwrap_err(), "InvalidRange");
    assert!(get().if_match(&etag).send().await.is_ok());
    let failed = get().if_match("\"other\"").send().await.map_err(code).unwrap_err();
    assert_eq!(failed, "PreconditionFailed");
    let unchanged = get().if_none_match(&etag).send().await.unwrap_err();
    assert_eq!(unchanged.raw_response().unwrap().status().as_u16(), 304);
}

#[tokio::test]
async fn a_conditional_write_decides_exactly_once() {
    let fixture = Fixture::start().await;
    let bodies: Vec<String> = (0..24).map(|n| format!("writer {n}")).collect();
    let outcomes = join_all(bodies.iter().map(|body| fixture.put_if_absent("once", body))).await;
    let winners: Vec<&String> =
        bodies.iter().zip(&outcomes).filter(|(_, put)| put.is_ok()).map(|(body, _)| body).collect();
    assert_eq!(winners.len(), 1);
    assert_eq!(fixture.get("once").await.unwrap(), *winners[0]);
    for outcome in outcomes.iter().filter(|outcome| outcome.is_err()) {
        assert_eq!(outcome.as_ref().unwrap_err(), "PreconditionFailed");
    }

    // Eight writers increment a number 40 times in total. Each write has the condition that no
    // other writer has changed the number.
    fixture.put("count", "0").await.unwrap();
    let add = || async {
        for _ in 0..5 {
            loop {
                let got = fixture.client.get_object().bucket(BUCKET).key("count").send();
                let got = got.await.unwrap();
                let etag = got.e_tag().unwrap().to_owned();
                let bytes = got.body.collect().await.unwrap().into_bytes();
                let count: u32 = std::str::from_utf8(&bytes).unwrap().parse().unwrap();
                let body = ByteStream::from((count + 1).to_string().into_bytes());
                let put = fixture.client.put_object().bucket(BUCKET).key("count");
                match put.if_match(etag).body(body).send().await.map_err(code) {
                    Ok(_) => break,
                    Err(code) => assert_eq!(code, "PreconditionFailed"),
                }
            }
        }
    };
    join_all((0..8).map(|_| add())).await;
    assert_eq!(fixture.get("count").await.unwrap(), "40");

    let put = fixture.client.put_object().bucket(BUCKET).key("absent").if_match("\"x\"");
    assert_eq!(put.send().await.map_err(code).unwrap_err(), "NoSuchKey");
    assert!(files(&fixture.folder.path().join("s3/.tmp")).is_empty(), "nothing is left over");
}

#[tokio::test]
async fn writes_and_deletes_in_one_folder_do_not_hinder_each_other() {
    let fixture = Fixture::start().await;
    let work = |n: usize| {
        let fixture = &fixture;
        async move {
            let key = format!("deep/er/folder/{n}");
            for _ in 0..10 {
                fixture.put(&key, "x").await.unwrap();
                assert_eq!(fixture.get(&key).await.unwrap(), "x");
                fixture.client.delete_object().bucket(BUCKET).key(&key).send().await.unwrap();
                assert_eq!(fixture.get(&key).await.unwrap_err(), "NoSuchKey");
            }
        }
    };
    join_all((0..8).map(work)).await;
    assert_eq!(fixture.keys().await, Vec::<String>::new());
    assert_eq!(fs::read_dir(fixture.bucket()).unwrap().count(), 0, "empty folders are removed");
}

#[tokio::test]
async fn names_that_attack_a_path_stay_names() {
    let fixture = Fixture::start().await;
    let canary = fixture.folder.path().join("canary");
    fs::write(&canary, "untouched").unwrap();
    let keys = [
        "'; DROP TABLE votes; --",
        "../../etc/passwd",
        "../canary",
        "../../canary",
        "a/../../canary",
        "/canary",
        "//canary",
        "..%2f..%2fcanary",
        "%2e%2e/canary",
        "$(id)",
        "{{7*7}}",
        "#",
        ":",
        "C:\\canary",
        "..\\..\\canary",
        "~",
        "-rf",
        "a\u{202e}b",
        ".tmp/0",
        ".objects/x",
        "folder/",
        "other//",
        "new\nline",
        "nul\u{0}l",
        "%~",
        "a+b c&d=e?f",
    ];
    for key in keys {
        fixture.put(key, key).await.unwrap_or_else(|error| panic!("{key:?}: {error}"));
    }
    for key in keys {
        assert_eq!(fixture.get(key).await.unwrap(), key);
    }
    let mut sorted = keys.to_vec();
    sorted.sort_unstable();
    let listed = fixture.client.list_objects_v2().bucket(BUCKET);
    let listed = listed.encoding_type("url".into()).send().await.unwrap();
    assert_eq!(listed.key_count(), i32::try_from(keys.len()).ok());
    let decoded = listed.contents().iter().map(|object| object.key().unwrap());
    let decoded = decoded.map(|key| percent_decode_str(key).decode_utf8().unwrap());
    assert_eq!(decoded.collect::<Vec<_>>(), sorted);

    let outside = files(fixture.folder.path());
    let outside: Vec<&str> = outside
        .keys()
        .map(String::as_str)
        .filter(|name| {
            !name.starts_with("s3/archive/") && !name.starts_with("s3/.objects/archive/")
        })
        .collect();
    assert_eq!(outside, ["canary"]);
    assert_eq!(fs::read_to_string(canary).unwrap(), "untouched");

    let long = format!("a/{}", "x".repeat(256));
    assert_eq!(fixture.put(&long, "").await.unwrap_err(), "KeyTooLongError");
    for key in keys {
        fixture.client.delete_object().bucket(BUCKET).key(key).send().await.unwrap();
    }
    fixture.client.delete_bucket().bucket(BUCKET).send().await.unwrap();
}

#[tokio::test]
async fn a_file_cannot_also_be_a_folder() {
    let fixture = Fixture::start().await;
    fixture.put("a", "file").await.unwrap();
    assert_eq!(fixture.put("a/b", "").await.unwrap_err(), "InvalidRequest");
    fixture.put("c/d/e", "").await.unwrap();
    assert_eq!(fixture.put("c/d", "").await.unwrap_err(), "InvalidRequest");
    assert_eq!(fixture.get("a").await.unwrap(), "file");
    // An empty folder from an interrupted delete does not prevent a later write.
    fs::create_dir_all(fixture.bucket().join("left/over")).unwrap();
    fixture.put("left", "file").await.unwrap();
    assert_eq!(fixture.keys().await, ["a", "c/d/e", "left"]);
}

#[tokio::test]
async fn listings_have_pages_prefixes_and_a_first_version() {
    let fixture = Fixture::start().await;
    for key in ["a/1", "a/2", "a-b", "b/x/1", "b/x/2", "b/y", "c"] {
        fixture.put(key, key).await.unwrap();
    }
    let list = || fixture.client.list_objects_v2().bucket(BUCKET);
    let listed = list().delimiter("/").send().await.unwrap();
    let prefixes: Vec<_> = listed.common_prefixes().iter().map(|p| p.prefix().unwrap()).collect();
    assert_eq!(prefixes, ["a/", "b/"]);
    let keys: Vec<_> = listed.contents().iter().map(|object| object.key().unwrap()).collect();
    assert_eq!(keys, ["a-b", "c"]);
    assert_eq!(listed.contents()[0].size(), Some(3));
    assert_eq!(listed.contents()[1].e_tag(), Some("\"4a8a08f09d37b73795649038408b5f33\""));

    let mut pages = list().delimiter("/").max_keys(1).into_paginator().send();
    let mut seen = Vec::new();
    while let Some(page) = pages.next().await {
        let page = page.unwrap();
        assert_eq!(page.key_count(), Some(1));
        seen.extend(page.common_prefixes().iter().map(|p| p.prefix().unwrap().to_owned()));
        seen.extend(page.contents().iter().map(|object| object.key().unwrap().to_owned()));
    }
    assert_eq!(seen, ["a-b", "a/", "b/", "c"]);

    let listed = list().prefix("b/").start_after("b/x/1").send().await.unwrap();
    let keys: Vec<_> = listed.contents().iter().map(|object| object.key().unwrap()).collect();
    assert_eq!(keys, ["b/x/2", "b/y"]);
    let listed = list().max_keys(0).send().await.unwrap();
    assert_eq!((listed.key_count(), listed.is_truncated()), (Some(0), Some(false)));
    let wrong = list().continuation_token("nonsense").send().await.map_err(code).unwrap_err();
    assert_eq!(wrong, "InvalidArgument");

    let first = fixture.client.list_objects().bucket(BUCKET).delimiter("/").max_keys(2);
    let first = first.send().await.unwrap();
    assert_eq!((first.is_truncated(), first.next_marker()), (Some(true), Some("a/")));
    let rest = fixture.client.list_objects().bucket(BUCKET).delimiter("/").marker("a/");
    let rest = rest.send().await.unwrap();
    assert_eq!(rest.common_prefixes()[0].prefix(), Some("b/"));
    assert_eq!(rest.contents()[0].key(), Some("c"));
}

#[tokio::test]
async fn buckets_are_made_and_removed_on_purpose_only() {
    let fixture = Fixture::start().await;
    let client = &fixture.client;
    client.create_bucket().bucket(BUCKET).send().await.unwrap();
    let put = client.put_object().bucket("missing").key("k").body(ByteStream::from_static(b"x"));
    assert_eq!(put.send().await.map_err(code).unwrap_err(), "NoSuchBucket");
    assert!(!fixture.folder.path().join("s3/missing").exists(), "a write makes no bucket");
    let list = client.list_objects_v2().bucket("missing").send().await.map_err(code);
    assert_eq!(list.unwrap_err(), "NoSuchBucket");
    assert!(client.head_bucket().bucket("missing").send().await.is_err());
    let head = client.head_bucket().bucket(BUCKET).send().await.unwrap();
    assert_eq!(head.bucket_region(), Some("eu-west-1"));
    let wrong = client.create_bucket().bucket("Not_A_Name").send().await.map_err(code);
    assert_eq!(wrong.unwrap_err(), "InvalidBucketName");
    client.create_bucket().bucket("second").send().await.unwrap();
    let buckets = client.list_buckets().send().await.unwrap();
    let names: Vec<_> = buckets.buckets().iter().map(|bucket| bucket.name().unwrap()).collect();
    assert_eq!(names, [BUCKET, "second"]);

    fixture.put("a/b", "").await.unwrap();
    let full = client.delete_bucket().bucket(BUCKET).send().await.map_err(code);
    assert_eq!(full.unwrap_err(), "BucketNotEmpty");
    let objects =
        ["a/b", "absent"].map(|key| ObjectIdentifier::builder().key(key).build().unwrap());
    let delete = Delete::builder().set_objects(Some(objects.to_vec())).build().unwrap();
    let deleted = client.delete_objects().bucket(BUCKET).delete(delete).send().await.unwrap();
    assert_eq!((deleted.deleted().len(), deleted.errors().len()), (2, 0));
    client.delete_bucket().bucket(BUCKET).send().await.unwrap();
    assert_eq!(fixture.get("a/b").await.unwrap_err(), "NoSuchBucket");
    let unknown = client.get_bucket_versioning().bucket("second").send().await.map_err(code);
    assert_eq!(unknown.unwrap_err(), "NotImplemented");
}

#[tokio::test]
async fn objects_and_what_is_known_of_them_survive_a_restart() {
    let fixture = Fixture::start().await;
    let put = fixture.client.put_object().bucket(BUCKET).key("k").metadata("a", "b");
    let etag = put.body(ByteStream::from_static(b"content")).send().await.unwrap().e_tag;
    fs::create_dir(fixture.bucket().join("by-hand")).unwrap();
    fs::write(fixture.bucket().join("by-hand/file"), "content").unwrap();
    let root = fixture.folder.path().join("s3");
    fs::write(root.join(".tmp/interrupted"), "half").unwrap();
    fixture.endpoint.shutdown().await;

    let (_endpoint, client) = serve(&root).await;
    let head = |key| client.head_object().bucket(BUCKET).key(key).send();
    let kept = head("k").await.unwrap();
    assert_eq!((kept.e_tag(), &*kept.metadata().unwrap()["a"]), (etag.as_deref(), "b"));
    let found = head("by-hand/file").await.unwrap();
    assert_eq!(found.e_tag(), etag.as_deref(), "the same content has the same ETag");
    assert_eq!(found.content_type(), Some("binary/octet-stream"));
    assert!(files(&root.join(".tmp")).is_empty());
    fs::remove_dir_all(root.join(".objects")).unwrap();
    assert_eq!(head("k").await.unwrap().e_tag(), etag.as_deref(), "the ETag is the content's MD5");
    fs::write(root.join(BUCKET).join("k"), "other content").unwrap();
    assert_ne!(head("k").await.unwrap().e_tag(), etag.as_deref(), "a changed file is noticed");
}

#[tokio::test]
async fn parts_become_one_object() {
    let fixture = Fixture::start().await;
    let client = &fixture.client;
    let create = client.create_multipart_upload().bucket(BUCKET).key("big/object");
    let upload = create.content_type("text/plain").send().await.unwrap().upload_id.unwrap();
    let contents = ["a".repeat(5 * 1_024 * 1_024), "b".repeat(10)];
    let mut parts = Vec::new();
    for (number, content) in (1..).zip(&contents) {
        let part = client.upload_part().bucket(BUCKET).key("big/object").upload_id(&upload);
        let part = part.part_number(number).body(ByteStream::from(content.clone().into_bytes()));
        let etag = part.send().await.unwrap().e_tag.unwrap();
        parts.push(CompletedPart::builder().part_number(number).e_tag(etag).build());
    }
    assert_eq!(fixture.keys().await, Vec::<String>::new(), "an upload is no object yet");
    let complete = |parts: Vec<CompletedPart>| {
        let all = CompletedMultipartUpload::builder().set_parts(Some(parts)).build();
        let complete = client.complete_multipart_upload().bucket(BUCKET).key("big/object");
        complete.upload_id(&upload).multipart_upload(all).send()
    };
    let reversed: Vec<_> = parts.iter().rev().cloned().collect();
    assert_eq!(complete(reversed).await.map_err(code).unwrap_err(), "InvalidPartOrder");
    let absent = vec![CompletedPart::builder().part_number(9).e_tag("x").build()];
    assert_eq!(complete(absent).await.map_err(code).unwrap_err(), "InvalidPart");
    complete(parts.clone()).await.unwrap();
    assert_eq!(fixture.get("big/object").await.unwrap(), contents.concat());
    assert_eq!(complete(parts).await.map_err(code).unwrap_err(), "NoSuchUpload");
    let escape = client.abort_multipart_upload().bucket(BUCKET).key("k").upload_id("../archive");
    assert_eq!(escape.send().await.map_err(code).unwrap_err(), "NoSuchUpload");
    assert!(files(&fixture.folder.path().join("s3/.uploads")).is_empty());

    let copy = client.copy_object().bucket(BUCKET).key("copy").copy_source("archive/big/object");
    copy.send().await.unwrap();
    assert_eq!(fixture.get("copy").await.unwrap(), contents.concat());
    let head = client.head_object().bucket(BUCKET).key("copy").send().await.unwrap();
    assert_eq!(head.content_type(), Some("text/plain"));
}

#[tokio::test]
async fn a_body_from_a_file_comes_through_the_sdk() {
    let fixture = Fixture::start().await;
    let path = fixture.folder.path().join("source");
    let content = "0123456789".repeat(100_000);
    fs::write(&path, &content).unwrap();
    let body = ByteStream::from_path(&path).await.unwrap();
    let put = fixture.client.put_object().bucket(BUCKET).key("file").body(body);
    put.send().await.unwrap();
    assert_eq!(fixture.get("file").await.unwrap(), content);
}

/// Returns every file with its content, and every folder.
fn tree(folder: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            found.insert(path.clone(), fs::read(&path).ok());
            folders.extend(path.is_dir().then_some(path));
        }
    }
    found
}

/// Goal: a refused write leaves no file, no description and no folder. Method: the whole folder is compared
/// before and after each kind of refusal.
#[tokio::test]
async fn a_refused_write_leaves_nothing_behind() {
    let fixture = Fixture::start().await;
    fixture.put("folder/object", "first").await.unwrap();
    let client = &fixture.client;
    let create =
        client.create_multipart_upload().bucket(BUCKET).key("folder").send().await.unwrap();
    let upload = create.upload_id().unwrap();
    let part = client.upload_part().bucket(BUCKET).key("folder").upload_id(upload).part_number(1);
    let part = part.body(ByteStream::from_static(b"part")).send().await.unwrap();
    let part = CompletedPart::builder().part_number(1).e_tag(part.e_tag().unwrap()).build();
    let long = "x".repeat(256);
    let root = fixture.folder.path().join("s3");
    let before = tree(&root);
    let keys =
        ["folder", "folder/object/below", "folder/object/below/it", &format!("a/b/{long}"), &long]
            .map(str::to_owned);
    for key in keys.iter().chain([&format!("c/{long}/d")]) {
        let error = fixture.put(key, "refused").await.unwrap_err();
        assert!(["InvalidRequest", "KeyTooLongError"].contains(&&*error), "{key}: {error}");
        assert_eq!(tree(&root), before, "put {key}");
        let copy = client.copy_object().bucket(BUCKET).key(key);
        copy.copy_source(format!("{BUCKET}/folder/object")).send().await.unwrap_err();
        assert_eq!(tree(&root), before, "copy {key}");
    }
    let put = |key: &str| {
        client.put_object().bucket(BUCKET).key(key).body(ByteStream::from_static(b"refused"))
    };
    put("new").content_md5("AAAAAAAAAAAAAAAAAAAAAA==").send().await.unwrap_err();
    put("new").if_match("\"0\"").send().await.unwrap_err();
    put("folder/object").if_none_match("*").send().await.unwrap_err();
    put("folder/object").if_match("\"0\"").send().await.unwrap_err();
    put("new").bucket("no-such-bucket").send().await.unwrap_err();
    client.create_multipart_upload().bucket(BUCKET).key(&long).send().await.unwrap_err();
    let part_of = |number| {
        let part = client.upload_part().bucket(BUCKET).key("folder").upload_id(upload);
        part.part_number(number).body(ByteStream::from_static(b"refused"))
    };
    part_of(0).send().await.unwrap_err();
    part_of(2).content_md5("AAAAAAAAAAAAAAAAAAAAAA==").send().await.unwrap_err();
    // The completion fails, because the path of the object is a folder. The upload is kept, so that
    // it can be aborted.
    let parts = CompletedMultipartUpload::builder().parts(part).build();
    let complete = client.complete_multipart_upload().bucket(BUCKET).key("folder");
    complete.upload_id(upload).multipart_upload(parts).send().await.unwrap_err();
    assert_eq!(tree(&root), before);
    assert_eq!(fixture.get("folder/object").await.unwrap(), "first");
}

//! Tests that damage to durable bytes is detected: a wrong payload is never returned, and a lost
//! file is always reported.

use super::*;

/// Returns a log with two full segments, and a third segment with three synced groups of two
/// entries.
fn damaged_log() -> (SimulatedDisk, Vec<String>, Vec<Entry>) {
    let disk = SimulatedDisk::new();
    let mut log = open(&disk);
    let mut all = entries(1, 57);
    log.append(&all).unwrap();
    log.sync().unwrap();
    for index in [57, 59, 61] {
        // Payloads of 61 and 3 bytes require padding.
        let group = [entry(index, 61), entry(index + 1, 3)];
        log.append(&group).unwrap();
        log.sync().unwrap();
        all.extend(group);
    }
    (disk.clone(), segment_names(&disk), all)
}

fn used_bytes(disk: &SimulatedDisk, name: &str) -> usize {
    contents(disk, name).iter().rposition(|byte| *byte != 0).unwrap() + 9
}

#[test]
fn every_flipped_byte_is_detected_or_cuts_only_the_last_group() {
    let (disk, names, all) = damaged_log();
    assert_eq!(names.len(), 3);
    let (mut corrupt, mut cut, mut harmless) = (0, 0, 0);
    for (number, name) in names.iter().enumerate() {
        for offset in 0..used_bytes(&disk, name) {
            for mask in [1, 0xff] {
                let (disk, ..) = damaged_log();
                disk.corrupt(name, offset, &[mask]);
                match Log::open(Arc::new(disk), options()) {
                    Err(error) => {
                        assert!(matches!(error, Error::Corrupt { .. }), "{error}");
                        assert!(error.to_string().contains(name.as_str()), "{error}");
                        corrupt += 1;
                    }
                    Ok(log) => {
                        let read = read_all(&log);
                        assert_eq!(read, all[..read.len()], "{name} {offset}");
                        if read.len() == all.len() {
                            harmless += 1;
                        } else {
                            assert!(number == 2 && read.len() >= all.len() - 2, "{name} {offset}");
                            cut += 1;
                        }
                    }
                }
            }
        }
    }
    assert!(corrupt > 10_000 && cut > 200 && harmless > 0, "{corrupt} {cut} {harmless}");
}

#[test]
fn damage_under_an_open_log_is_detected_by_a_read() {
    let (disk, names, all) = damaged_log();
    let log = open(&disk);
    for name in &names {
        for offset in DATA_OFFSET as usize..used_bytes(&disk, name) {
            disk.corrupt(name, offset, &[0x10]);
            let mut expected = all.iter();
            for read in log.read(1, log.next_index()).unwrap() {
                match read {
                    Ok(entry) => assert_eq!(Some(&entry), expected.next(), "{name} {offset}"),
                    Err(error) => {
                        let (file, at, _) = corruption(error);
                        assert_eq!(&file, name);
                        assert!(at <= offset as u64 && at + 144 > offset as u64);
                    }
                }
            }
            disk.corrupt(name, offset, &[0x10]);
        }
    }
    assert_eq!(read_all(&log), all);
}

#[test]
fn files_that_contradict_each_other_are_refused() {
    type Damage = fn(&SimulatedDisk, &[String]);
    let cases: [(&str, Damage, &str); 6] = [
        (
            "a middle segment is missing",
            |disk, names| disk.remove(&names[1]).unwrap(),
            "segment-0000000000000003 24 expected the preceding segment \
            segment-0000000000000002, found only the older segment segment-0000000000000001",
        ),
        (
            "two segments are swapped",
            |disk, names| {
                disk.rename(&names[0], "aside").unwrap();
                disk.rename(&names[1], &names[0]).unwrap();
                disk.rename("aside", &names[1]).unwrap();
            },
            "segment-0000000000000001 16 expected segment id 1, found id 2",
        ),
        (
            "a segment is shorter",
            |disk, names| disk.shorten(&names[1], 6_000),
            "segment-0000000000000002 6000 expected a file of 8192 bytes, found 6000 bytes",
        ),
        (
            "a segment is empty",
            |disk, names| disk.shorten(&names[2], 0),
            "segment-0000000000000003 0 expected a segment header, found 0 bytes",
        ),
        (
            "a page of a segment is blank",
            |disk, names| {
                let page = contents(disk, &names[0])[4_096..].to_vec();
                disk.corrupt(&names[0], 4_096, &page);
            },
            "segment-0000000000000001 4096 expected the record of entry 1, found zeros",
        ),
        (
            "a header is blank",
            |disk, names| {
                let page = contents(disk, &names[2])[..4_096].to_vec();
                disk.corrupt(&names[2], 0, &page);
            },
            r"segment-0000000000000003 0 expected the magic `weir-log`, found `\x00\x00\x00\x00\x00\x00\x00\x00`",
        ),
    ];
    for (situation, damage, expected) in cases {
        let (disk, names, _) = damaged_log();
        damage(&disk, &names);
        let (file, offset, complaint) =
            corruption(Log::open(Arc::new(disk), options()).unwrap_err());
        assert_eq!(format!("{file} {offset} {complaint}"), expected, "{situation}");
    }
}

#[test]
fn missing_ends_show_in_the_indexes() {
    let (disk, names, _) = damaged_log();
    disk.remove(&names[0]).unwrap();
    disk.remove(&names[2]).unwrap();
    let log = open(&disk);
    assert_eq!(read_all(&log), entries(log.first_index(), log.next_index()));
    assert!(log.first_index() > 1 && log.next_index() < 63);
}

#[test]
fn another_format_version_is_refused_by_name() {
    let (disk, names, _) = damaged_log();
    // A later version of the program would also write a valid checksum.
    let head = contents(&disk, &names[1])[..48].to_vec();
    let crc = |head: &[u8]| crc32c::crc32c(&[&head[..12], &head[16..]].concat());
    let mut other = head.clone();
    other[8] = 9;
    let mask = (crc(&head) ^ crc(&other)).to_le_bytes();
    disk.corrupt(&names[1], 8, &[1 ^ 9]);
    disk.corrupt(&names[1], 12, &mask);
    let error = Log::open(Arc::new(disk), options()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the log file=`segment-0000000000000002` has format version 9; this program reads version 1"
    );
}

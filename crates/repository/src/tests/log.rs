//! Segments, gaps, chains, and ranges for a restore.

use super::*;

fn name(from: u32, to: u32) -> SegmentName {
    SegmentName { timeline: timeline(), from: time(from), to: time(to) }
}

/// Writes segments with these ends, each linked to the one before.
async fn write(fixture: &Fixture, ends: &[(u32, u32)]) {
    let mut link = None;
    for (from, to) in ends {
        let entries = format!("entries up to {to}");
        let name = name(*from, *to);
        let written = fixture.repository.write_segment(&name, link, entries.as_bytes()).await;
        link = Some(written.unwrap());
    }
}

async fn chain(fixture: &Fixture, from: u32, to: u32) -> Chain {
    fixture.repository.chain(&timeline(), time(from), time(to)).await.unwrap()
}

#[tokio::test]
async fn a_segment_is_written_once_and_read_again() {
    let fixture = Fixture::new().await;
    let repository = &fixture.repository;
    let entries = vec![7; 100_000];
    let first = repository.write_segment(&name(10, 20), None, &entries).await.unwrap();
    assert_eq!(first, repository.write_segment(&name(10, 20), None, &entries).await.unwrap());
    let other = repository.write_segment(&name(10, 20), None, b"other").await;
    assert!(matches!(other, Err(Error::Exists { object }) if object == first.name));
    let second = repository.write_segment(&name(20, 30), Some(first.clone()), b"").await.unwrap();
    let read = repository.read_segment(&name(10, 20)).await.unwrap();
    assert_eq!((read.entries, read.previous, read.link), (entries, None, first.clone()));
    let read = repository.read_segment(&name(20, 30)).await.unwrap();
    assert_eq!((read.entries.len(), read.previous, read.link), (0, Some(first.clone()), second));
    // Any program that reads zstd gets the entries.
    let object = fixture.get(&first.name).await;
    assert!(object.len() < 1000);
    assert_eq!(zstd::stream::decode_all(&*object).unwrap(), vec![7; 100_000]);
    for name in [name(20, 20), name(30, 20)] {
        let written = repository.write_segment(&name, None, b"").await;
        assert!(matches!(written, Err(Error::InvalidInput { .. })));
    }
    let large = vec![0; MAX_SEGMENT_BYTES as usize + 1];
    let written = repository.write_segment(&name(30, 40), None, &large).await;
    assert!(matches!(written, Err(Error::TooLarge { .. })));
}

#[tokio::test]
async fn a_chain_covers_what_was_asked_for() {
    let fixture = Fixture::new().await;
    write(&fixture, &[(10, 20), (20, 35), (35, 50)]).await;
    let whole = [name(10, 20), name(20, 35), name(35, 50)];
    for (from, to, expected) in [
        (10, 50, &whole[..]),
        (15, 40, &whole[..]),
        (20, 35, &whole[1..2]),
        (21, 22, &whole[1..2]),
        (35, 36, &whole[2..]),
        (30, 30, &[]),
    ] {
        let chain = chain(&fixture, from, to).await;
        assert_eq!((&chain.segments[..], &chain.breaks[..]), (expected, &[][..]), "{from}-{to}");
    }
    let missing = |from, to| LogBreak::Missing { from: time(from), to: time(to) };
    assert_eq!(chain(&fixture, 5, 50).await.breaks, [missing(5, 10)]);
    assert_eq!(chain(&fixture, 40, 60).await.breaks, [missing(50, 60)]);
    assert_eq!(
        chain(&fixture, 5, 7).await,
        Chain { segments: vec![], breaks: vec![missing(5, 7)] }
    );
    assert_eq!(chain(&fixture, 70, 80).await.breaks, [missing(70, 80)]);
}

#[tokio::test]
async fn breaks_are_named() {
    let missing = |from, to| LogBreak::Missing { from: time(from), to: time(to) };
    // A recorded gap.
    let fixture = Fixture::new().await;
    write(&fixture, &[(10, 20), (30, 40)]).await;
    assert_eq!(chain(&fixture, 10, 40).await.breaks, [missing(20, 30)]);
    assert_eq!(fixture.problems().await[0].kind, ProblemKind::Break(missing(20, 30)));
    fixture.repository.write_gap(&name(20, 30), "no space").await.unwrap();
    let gap = LogBreak::Gap { from: time(20), to: time(30) };
    assert_eq!(chain(&fixture, 10, 40).await.breaks, [gap]);
    assert_eq!(fixture.repository.read_gap(&name(20, 30)).await.unwrap(), "no space");
    assert!(fixture.problems().await.is_empty());
    // Entries that were written after all.
    fixture.repository.write_gap(&name(35, 50), "no space").await.unwrap();
    let gap = |from, to| LogBreak::Gap { from: time(from), to: time(to) };
    assert_eq!(chain(&fixture, 30, 60).await.breaks, [gap(40, 50), missing(50, 60)]);
    assert!(fixture.problems().await.is_empty());
    let link = fixture.repository.read_segment(&name(10, 20)).await.unwrap().link;
    fixture.repository.write_segment(&name(20, 30), Some(link), b"late").await.unwrap();
    assert_eq!(chain(&fixture, 10, 30).await.breaks, []);
    // A segment that is missing in the middle.
    let fixture = Fixture::new().await;
    write(&fixture, &[(10, 20), (20, 30), (30, 40)]).await;
    fixture.delete(&name(20, 30).object()).await;
    assert_eq!(chain(&fixture, 10, 40).await.breaks, [missing(20, 30)]);
    // A segment that another writer wrote again in between.
    write(&fixture, &[(20, 30)]).await;
    let wrong = |name: SegmentName| LogBreak::WrongLink { object: name.object() };
    let breaks = [wrong(name(20, 30)), wrong(name(30, 40))];
    assert_eq!(chain(&fixture, 10, 40).await.breaks, breaks);
    let problems = fixture.problems().await;
    assert_eq!(problems.len(), 2);
    assert_eq!(problems[0].object, name(20, 30).object());
    // Times that are covered twice.
    let fixture = Fixture::new().await;
    write(&fixture, &[(10, 20)]).await;
    write(&fixture, &[(15, 30)]).await;
    write(&fixture, &[(16, 18)]).await;
    let overlap = |name: SegmentName| LogBreak::Overlap { object: name.object() };
    let breaks = [overlap(name(15, 30)), overlap(name(16, 18))];
    assert_eq!(chain(&fixture, 10, 30).await.breaks, breaks);
    assert_eq!(fixture.problems().await.len(), 2);
}

/// The headers of a chain are read without their entries, so their checksums are not known.
#[tokio::test]
async fn a_damaged_header_in_a_chain_is_reported_as_damage() {
    let fixture = Fixture::new().await;
    write(&fixture, &[(10, 20), (20, 30), (30, 40)]).await;
    let object = name(20, 30).object();
    let bytes = fixture.get(&object).await;
    for at in 0..bytes.len() {
        let mut damaged = bytes.to_vec();
        damaged[at] ^= 1;
        fixture.put(&object, &damaged).await;
        match fixture.repository.chain(&timeline(), time(10), time(40)).await {
            Err(Error::Damaged { object: found, .. }) => assert_eq!(found, object, "{at}"),
            Err(error) => panic!("{at}: {error}"),
            // A link that was damaged, or entries, which are not read here.
            Ok(_) => {}
        }
    }
}

#[tokio::test]
async fn reordered_segments_are_found() {
    let fixture = Fixture::new().await;
    write(&fixture, &[(10, 20), (20, 30)]).await;
    let (first, second) = (name(10, 20).object(), name(20, 30).object());
    let (a, b) = (fixture.get(&first).await, fixture.get(&second).await);
    fixture.put(&first, &b).await;
    fixture.put(&second, &a).await;
    for name in [name(10, 20), name(20, 30)] {
        let read = fixture.repository.read_segment(&name).await;
        assert!(matches!(read, Err(Error::Damaged { object, .. }) if object == name.object()));
    }
    let chain = fixture.repository.chain(&timeline(), time(10), time(30)).await;
    assert!(matches!(chain, Err(Error::Damaged { .. })));
    assert_eq!(fixture.problems().await.len(), 2);
}

#[tokio::test]
async fn ranges_end_at_gaps_and_begin_at_backups() {
    let fixture = Fixture::new().await;
    write(&fixture, &[(10, 20), (20, 30)]).await;
    fixture.repository.write_gap(&name(30, 40), "no space").await.unwrap();
    write(&fixture, &[(40, 50)]).await;
    write(&fixture, &[(60, 70)]).await;
    let mut ids = Vec::new();
    for at in [5, 15, 25, 35, 45, 70] {
        ids.push(fixture.backup(None, time(at), &[("a", b"a")]).await.id);
    }
    let ranges = fixture.repository.restore_ranges().await.unwrap();
    let found: Vec<_> = ranges
        .iter()
        .map(|range| (range.from.seconds, range.to.seconds, range.backups.len()))
        .collect();
    assert_eq!(found, [(5, 5, 1), (15, 30, 2), (35, 35, 1), (45, 50, 1), (70, 70, 1)]);
    assert_eq!(ranges[1].backups, ids[1..3]);
}

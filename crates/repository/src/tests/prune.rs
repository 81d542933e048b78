//! Plans of prunes, and their execution with interruptions.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};

use object_store::memory::InMemory;

use super::faulty::FaultyStore;
use super::*;

const DAY: u32 = 24 * 3600;
/// Monday, 2026-11-30 00:00 UTC.
const MONDAY: u32 = 1_795_996_800;

fn retention(keep_last: u32, keep_daily: u32, keep_weekly: u32) -> Retention {
    Retention { keep_last, keep_daily, keep_weekly }
}

fn keeping(retention: Retention) -> PruneOptions {
    PruneOptions { retention, ..PruneOptions::default() }
}

#[test]
fn a_retention_keeps_the_newest_of_each_period() {
    // Offsets from Monday in hours, the newest last, and the kept ones.
    let cases: &[(&[i64], Retention, &[i64])] = &[
        (&[], retention(3, 3, 3), &[]),
        (&[0, 1, 2, 3], retention(2, 0, 0), &[2, 3]),
        (&[0, 1, 2, 3], retention(9, 0, 0), &[0, 1, 2, 3]),
        // The last one before midnight, and today's.
        (&[-25, -2, -1, 0, 5], retention(0, 2, 0), &[-1, 5]),
        // Days without a backup do not count.
        (&[-240, -239, -100, 5], retention(0, 3, 0), &[-239, -100, 5]),
        // Sunday is of the week before.
        (&[-168, -30, -1, 0, 30], retention(0, 0, 2), &[-1, 30]),
        (&[-400, -168, -30, -1, 0, 30], retention(1, 3, 3), &[-400, -1, 0, 30]),
    ];
    for (hours, retention, expected) in cases {
        let second = |hour: &i64| (i64::from(MONDAY) + hour * 3600) as u32;
        let times: Vec<u32> = hours.iter().map(second).collect();
        let reasons = retention.reasons(&times);
        let kept = hours.iter().zip(&reasons).filter(|(_, reasons)| !reasons.is_empty());
        let kept: Vec<i64> = kept.map(|(hour, _)| *hour).collect();
        assert_eq!(&kept, expected, "{hours:?} {retention:?}");
    }
}

/// Four daily backups, each of which shares a file with the one before, and a log.
async fn daily(fixture: &Fixture) -> Vec<Manifest> {
    let mut made: Vec<Manifest> = Vec::new();
    for day in 0..4 {
        let own = format!("of day {day}");
        let shared = format!("{}", day / 2);
        let files = [("own", own.as_bytes()), ("000012.sst", shared.as_bytes())];
        let parent = made.last().map(|last| last.id.clone());
        let at = time(MONDAY + day * DAY);
        // The content of the shared table changes, so it is only taken over where it is the same.
        let parent = parent.filter(|_| day % 2 == 1);
        made.push(fixture.backup(parent.as_ref(), at, &files).await);
    }
    let mut link = None;
    for day in 0..4 {
        let (from, to) = (time(MONDAY + day * DAY), time(MONDAY + (day + 1) * DAY));
        let name = SegmentName { timeline: timeline(), from, to };
        link = Some(fixture.repository.write_segment(&name, link, b"entries").await.unwrap());
    }
    made
}

#[tokio::test]
async fn a_plan_changes_nothing_and_its_execution_deletes_what_it_says() {
    let fixture = Fixture::new().await;
    let made = daily(&fixture).await;
    let before = fixture.names().await;
    let plan = fixture.repository.plan_prune(&keeping(retention(1, 0, 0))).await.unwrap();
    assert_eq!(fixture.names().await, before);
    let ids: Vec<BackupId> = made.iter().map(|made| made.id.clone()).collect();
    assert_eq!(plan.delete, ids[..3]);
    let reasons = vec![KeepReason::Last, KeepReason::Newest, KeepReason::NewestWhole];
    assert_eq!(plan.keep, [KeptBackup { id: ids[3].clone(), reasons }]);
    // The table of the last backup was sent by its parent, which is deleted.
    assert_eq!((plan.contents.len(), plan.bytes()), (4, 3 * 8 + 1));
    assert_eq!(plan.log.len(), 3);
    fixture.repository.apply_prune(&plan, &fixture.transfer()).await.unwrap();
    assert_eq!(fixture.names().await.len(), before.len() - 3 - 4 - 3);
    assert!(fixture.problems().await.is_empty());
    assert_eq!(fixture.repository.backup_ids().await.unwrap(), ids[3..]);
    // There is nothing left to do.
    let plan = fixture.repository.plan_prune(&keeping(retention(1, 0, 0))).await.unwrap();
    assert!(plan.delete.is_empty() && plan.contents.is_empty() && plan.log.is_empty());
}

#[tokio::test]
async fn an_interrupted_prune_leaves_a_valid_repository() {
    let (inner, left) = (Arc::new(InMemory::new()), Arc::new(AtomicI64::new(i64::MAX)));
    let store = Arc::new(FaultyStore { inner, left: left.clone() });
    let mut sizes = BTreeSet::new();
    for steps in 0.. {
        let fixture = Fixture::over(store.clone()).await;
        for name in fixture.names().await {
            fixture.delete(&name).await;
        }
        let fixture = Fixture::over(store.clone()).await;
        let made = daily(&fixture).await;
        let plan = fixture.repository.plan_prune(&keeping(retention(1, 0, 0))).await.unwrap();
        left.store(steps, Ordering::SeqCst);
        let applied = fixture.repository.apply_prune(&plan, &fixture.transfer()).await;
        left.store(i64::MAX, Ordering::SeqCst);
        assert!(fixture.problems().await.is_empty(), "after {steps}");
        sizes.insert(fixture.names().await.len());
        // The same plan again ends the work.
        fixture.clock.advance_ms(crate::lock::EXPIRY_MS);
        fixture.repository.apply_prune(&plan, &fixture.transfer()).await.unwrap();
        assert_eq!(fixture.repository.backup_ids().await.unwrap(), [made[3].id.clone()]);
        assert!(fixture.problems().await.is_empty());
        assert_eq!(fixture.names().await.len(), 5);
        if applied.is_ok() {
            // The lock twice, and ten objects.
            assert_eq!(steps, 12);
            break;
        }
    }
    assert!(sizes.len() > 8, "{sizes:?}");
}

#[tokio::test]
async fn the_newest_whole_backup_is_never_deleted() {
    let fixture = Fixture::new().await;
    let made = daily(&fixture).await;
    for made in &made[2..] {
        fixture.delete(&format!("files/{}", made.files[1].sha256)).await;
    }
    let plan = fixture.repository.plan_prune(&keeping(retention(1, 0, 0))).await.unwrap();
    let kept: Vec<_> = plan.keep.iter().map(|kept| kept.id.clone()).collect();
    assert_eq!(kept, [made[1].id.clone(), made[3].id.clone()]);
    assert_eq!(plan.keep[0].reasons, [KeepReason::NewestWhole]);
    // On request the damaged ones go, but not the last whole ones.
    let delete = made[1..].iter().map(|made| made.id.clone()).collect();
    let options = PruneOptions { delete, ..keeping(retention(1, 0, 0)) };
    let plan = fixture.repository.plan_prune(&options).await.unwrap();
    assert_eq!((plan.keep.len(), plan.delete.len()), (1, 3));
    let delete = made[..2].iter().map(|made| made.id.clone()).collect();
    let options = PruneOptions { delete, ..keeping(retention(1, 0, 0)) };
    let refused = fixture.repository.plan_prune(&options).await;
    assert!(matches!(refused, Err(Error::InvalidInput { .. })), "{refused:?}");
}

#[tokio::test]
async fn requests_and_mistakes() {
    let fixture = Fixture::new().await;
    let made = daily(&fixture).await;
    let repository = &fixture.repository;
    let refused = repository.plan_prune(&keeping(retention(0, 0, 0))).await;
    assert!(matches!(refused, Err(Error::InvalidInput { .. })));
    let options = PruneOptions { keep: vec![made[0].id.clone()], ..keeping(retention(1, 0, 0)) };
    let plan = repository.plan_prune(&options).await.unwrap();
    assert_eq!(plan.keep[0].reasons, [KeepReason::Requested]);
    // The log from the oldest kept backup on is kept.
    assert!(plan.log.is_empty());
    // A backup was made since.
    fixture.backup(None, time(MONDAY + 5 * DAY), &[("a", b"a")]).await;
    let applied = repository.apply_prune(&plan, &fixture.transfer()).await;
    assert!(matches!(applied, Err(Error::PlanOutdated)));
    // A manifest that cannot be read may name any content.
    let manifest = format!("backups/{}/manifest.json", made[1].id);
    fixture.flip(&manifest, 100).await;
    let refused = repository.plan_prune(&options).await;
    assert!(matches!(refused, Err(Error::Damaged { object, .. }) if object == manifest));
    let options = PruneOptions { delete: vec![made[1].id.clone()], ..options };
    let plan = repository.plan_prune(&options).await.unwrap();
    assert!(plan.delete.contains(&made[1].id));
    repository.apply_prune(&plan, &fixture.transfer()).await.unwrap();
    assert!(fixture.problems().await.is_empty());
}

#[tokio::test]
async fn no_backup_begins_during_a_prune() {
    let fixture = Fixture::new().await;
    let clock: Arc<dyn Clock> = fixture.clock.clone();
    let objects = crate::objects::Objects::new(fixture.objects.clone());
    let id = "20261127T212149123Z-00000000".parse().unwrap();
    let operation = crate::lock::Operation::Prune;
    let lock = crate::lock::Lock::take(&objects, &clock, operation, &id).await.unwrap();
    let begun = fixture.repository.begin(start(None)).await.err();
    assert!(matches!(begun, Some(Error::Busy { .. })), "{begun:?}");
    lock.release().await.unwrap();
    fixture.repository.begin(start(None)).await.unwrap().abandon().await.unwrap();
    assert_eq!(fixture.names().await, ["repository.json"]);
}

#[tokio::test]
async fn the_log_of_another_timeline_stays_until_it_is_older_than_all_backups() {
    let fixture = Fixture::new().await;
    daily(&fixture).await;
    let other = |from, to| SegmentName {
        timeline: "t2".parse().unwrap(),
        from: time(MONDAY + from * DAY),
        to: time(MONDAY + to * DAY),
    };
    for name in [other(1, 3), other(3, 4)] {
        fixture.repository.write_segment(&name, None, b"entries").await.unwrap();
    }
    let plan = fixture.repository.plan_prune(&keeping(retention(1, 0, 0))).await.unwrap();
    let deleted: Vec<_> = plan.log.iter().map(|part| &part.name).collect();
    assert!(deleted.contains(&&other(1, 3)) && !deleted.contains(&&other(3, 4)));
}

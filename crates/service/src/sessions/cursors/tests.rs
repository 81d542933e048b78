//! Tests of open cursors.

use std::sync::mpsc;
use std::task::Context;

use mayfly_query::CursorSource;

use super::*;

#[test]
fn a_batch_waits_while_the_memory_of_its_cursor_is_released() {
    let (cursors, ns) = (Cursors::default(), Namespace::new("test", "c").unwrap());
    let source = CursorSource::Ready([mayfly_value::DocBuf::empty()].into());
    let cursor = Cursor::new(ns.clone(), source);
    let owner = CursorOwner::default();
    let kept = RetainedBytes::default();
    let id = cursors.register((cursor, kept), owner.clone(), IdleTime::Unlimited, 0);
    let (begun, wait_for_begin) = mpsc::channel();
    let (go_on, wait_to_go_on) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        let cursors = &cursors;
        scope.spawn(move || {
            cursors.borrow(id, |_| {
                begun.send(()).unwrap();
                wait_to_go_on.recv().unwrap();
                Ok(())
            })
        });
        wait_for_begin.recv().unwrap();
        let again = cursors.borrow(id, |_| Ok(())).unwrap_err();
        assert_eq!(again.code(), ErrorCode::CursorInUse);
        let batch = scope.spawn(|| cursors.take(id, &ns, &owner, 0).map(drop));
        go_on.send(()).unwrap();
        assert!(batch.join().unwrap().is_ok());
    });
    // The batch has it now.
    let used = cursors.borrow(id, |_| Ok(())).unwrap_err();
    assert_eq!(used.code(), ErrorCode::CursorInUse);
    assert_eq!(cursors.borrow(1, |_| Ok(())).unwrap_err().code(), ErrorCode::CursorNotFound);
}

#[test]
fn a_batch_that_waits_ends_with_its_cursor_and_keeps_it_open() {
    let (cursors, ns) = (Cursors::default(), Namespace::new("test", "c").unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let open = || {
        let source = CursorSource::Ready([mayfly_value::DocBuf::empty()].into());
        let cursor = (Cursor::new(ns.clone(), source), RetainedBytes::default());
        cursors.register(cursor, CursorOwner::default(), IdleTime::Limited, 0)
    };
    let mut context = Context::from_waker(std::task::Waker::noop());
    let (id, other) = (open(), open());
    let mut wait = std::pin::pin!(cursors.closed(id));
    assert!(wait.as_mut().poll(&mut context).is_pending());
    assert_eq!(cursors.counts(0).pinned, 1);
    // The timeout is over for the cursor without a batch only.
    cursors.close_idle(IDLE_MS * 2000);
    assert!(cursors.namespace(id).is_some() && cursors.namespace(other).is_none());
    assert!(wait.as_mut().poll(&mut context).is_pending());
    assert_eq!(cursors.kill(&[id], |_, _| true).killed, [id]);
    runtime.block_on(wait);
    runtime.block_on(cursors.closed(id));
    // A wait that was given up does not keep the cursor open.
    let id = open();
    let mut abandoned = Box::pin(cursors.closed(id));
    assert!(abandoned.as_mut().poll(&mut context).is_pending());
    drop(abandoned);
    assert_eq!(cursors.counts(0).pinned, 0);
    cursors.close_idle(IDLE_MS * 4000);
    assert!(cursors.namespace(id).is_none());
}

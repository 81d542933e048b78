//! Point finds over few and over thousands of connections, and with several requests under way on
//! each.
//!
//! All use the event loop, so that only the number of connections differs.

use anyhow::Result;

use super::Plan;
use super::point::{RECORDS, load_records, reader};
use crate::figures::Measured;
use crate::load::{self, Load};
use crate::server::Target;

pub(super) fn one(target: &Target, plan: &Plan) -> Result<Measured> {
    find(target, plan, 1)
}

pub(super) fn sixteen(target: &Target, plan: &Plan) -> Result<Measured> {
    find(target, plan, 16)
}

pub(super) fn many(target: &Target, plan: &Plan) -> Result<Measured> {
    find(target, plan, 256)
}

pub(super) fn thousands(target: &Target, plan: &Plan) -> Result<Measured> {
    find(target, plan, 2000)
}

fn find(target: &Target, plan: &Plan, connections: usize) -> Result<Measured> {
    load_records(target, RECORDS, plan.records)?;
    let load = Load::new(plan, connections, |n| reader(1000 + n as u64, plan.records));
    load::run(target, plan, &load.in_event_loop())
}

pub(super) fn pipelined(target: &Target, plan: &Plan) -> Result<Measured> {
    load_records(target, RECORDS, plan.records)?;
    let mut load = Load::new(plan, 4, |n| reader(1000 + n as u64, plan.records));
    load.in_flight = plan.in_flight.max(8);
    load::run(target, plan, &load)
}

//! A replica set: the state that drivers see, and when this node is the primary.
//!
//! A set has one member, or those servers over one store in PostgreSQL that the engine knows: its
//! owner is the primary.
//!
//! The store knows whether it is the primary; this module keeps the term, and the state that
//! clients last saw.

mod config;

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

pub use mayfly_kv::Member;
use mayfly_kv::Members;
use mayfly_storage::Store;
use parking_lot::{Mutex, RwLock};

pub use self::config::{NUMBERS, SetConfig};
use crate::clients::Connection;
use crate::process::Topology;

/// The set that this node is a member of.
pub struct ReplicaSet {
    /// The name of the set, from `--replSet`.
    pub name: String,
    /// The address for clients; unset for the one that a connection came in on.
    advertised: Option<String>,
    id: [u8; 12],
    term: AtomicI64,
    /// Whether clients last saw a primary.
    primary: AtomicBool,
    /// Whether the node has lost the store that it shares with others.
    is_cut_off: AtomicBool,
    /// Held while `primary` changes.
    changing: Mutex<()>,
    /// When the current primary was elected, in milliseconds since 1970.
    elected_ms: AtomicI64,
    config: RwLock<SetConfig>,
    /// The servers over the store; none if this node is the only member.
    members: RwLock<Members>,
    /// Until when this secondary does not become the primary, in monotonic microseconds.
    frozen_until_micros: AtomicI64,
    /// Held while the configuration is changed and stored.
    pub reconfiguring: Mutex<()>,
}

impl ReplicaSet {
    /// A new set with this node as its primary.
    pub fn new(name: String, advertised: Option<String>, now_ms: i64) -> ReplicaSet {
        // The same after a restart with the same name.
        let mut id = [0; 12];
        for (at, byte) in name.bytes().enumerate() {
            id[at % 12] ^= byte.rotate_left(at as u32 % 8);
        }
        ReplicaSet {
            name,
            advertised,
            id,
            term: AtomicI64::new(1),
            primary: AtomicBool::new(true),
            is_cut_off: AtomicBool::new(false),
            changing: Mutex::new(()),
            elected_ms: AtomicI64::new(now_ms),
            config: RwLock::default(),
            members: RwLock::default(),
            frozen_until_micros: AtomicI64::new(i64::MIN),
            reconfiguring: Mutex::new(()),
        }
    }

    /// The address by which the client of this connection knows the node.
    pub fn me(&self, connection: &Connection, host: &str) -> String {
        self.address(Some(connection), host)
    }

    /// The address: that of the command line, else the configured one, else that of the connection,
    /// else the host's.
    pub(crate) fn address(&self, connection: Option<&Connection>, host: &str) -> String {
        if let Some(address) = &self.advertised {
            return address.to_lowercase();
        }
        if let Some(address) = &self.config.read().host {
            return address.to_lowercase();
        }
        let local = connection.map(|connection| &*connection.local);
        local.filter(|local| !local.is_empty()).unwrap_or(host).to_lowercase()
    }

    /// The address of the command line.
    pub fn advertised(&self) -> Option<&str> {
        self.advertised.as_deref()
    }

    /// The current configuration.
    pub fn config(&self) -> SetConfig {
        self.config.read().clone()
    }

    /// Replaces the configuration.
    pub fn configure(&self, config: SetConfig) {
        *self.config.write() = config;
    }

    /// Notes the servers over the store. Returns whether that changes what clients see.
    pub fn note_members(&self, members: Members) -> bool {
        let mut noted = self.members.write();
        let changes = *noted != members;
        *noted = members;
        changes
    }

    /// Keeps this node from becoming the primary until a time, in monotonic microseconds.
    pub fn freeze(&self, until_micros: i64) {
        self.frozen_until_micros.store(until_micros, Ordering::Release);
    }

    /// Whether this node may not become the primary at this time, in monotonic microseconds.
    pub fn is_frozen(&self, now_micros: i64) -> bool {
        now_micros < self.frozen_until_micros.load(Ordering::Acquire)
    }

    /// The number of members.
    pub fn count(&self) -> i64 {
        i64::try_from(self.members.read().list.len()).unwrap_or(i64::MAX).max(1)
    }

    /// The members, in the order of their addresses. This node is among them.
    pub fn members(&self, me: Member) -> Vec<Member> {
        let mut list = self.members.read().list.clone();
        list.retain(|other| other.address != me.address);
        // A new owner is known before its row is: no set has two primaries.
        list.iter_mut().for_each(|other| other.is_owner &= !me.is_owner);
        list.push(me);
        list.sort();
        list
    }

    /// The addresses of the members, in the order of their `_id`s from 0. `me` is that of this
    /// node.
    pub fn addresses(&self, me: &str) -> Vec<String> {
        // Which of them is the primary does not matter here.
        let me = Member { address: me.to_owned(), is_owner: false };
        self.members(me).into_iter().map(|member| member.address).collect()
    }

    /// The ObjectId `settings.replicaSetId` of the configuration.
    pub fn id(&self) -> [u8; 12] {
        self.id
    }

    /// The number of the current primary: that of the owner of a shared store, or the number of
    /// elections since the start.
    pub fn term(&self) -> i64 {
        match self.members.read().term {
            0 => self.term.load(Ordering::Acquire),
            term => term,
        }
    }

    /// `electionId` of the current term.
    pub fn election_id(&self) -> [u8; 12] {
        let mut id = [0; 12];
        id[..4].copy_from_slice(&0x7fff_ffff_u32.to_be_bytes());
        id[4..].copy_from_slice(&self.term().to_be_bytes());
        id
    }

    /// When the current primary was elected, in milliseconds since 1970.
    pub fn elected_ms(&self) -> i64 {
        self.elected_ms.load(Ordering::Acquire)
    }

    /// Whether the node has lost the store that it shares with others. A change wakes the commands
    /// that wait for one.
    pub fn is_cut_off(&self, store: &Store, topology: &Topology) -> bool {
        let now = store.engine().sharing().is_cut_off();
        if self.is_cut_off.load(Ordering::Acquire) != now {
            topology.changed();
            self.is_cut_off.store(now, Ordering::Release);
        }
        now
    }

    /// Whether the node is the primary now. A change wakes the commands that wait for one.
    pub fn is_primary(&self, store: &Store, topology: &Topology, now_ms: i64) -> bool {
        let now = store.is_primary();
        if self.primary.load(Ordering::Acquire) == now {
            return now;
        }
        // Read again under a lock: a value from before a step-down must not look like an election
        // after it.
        let _changing = self.changing.lock();
        let now = store.is_primary();
        if self.primary.load(Ordering::Acquire) != now {
            if now {
                self.term.fetch_add(1, Ordering::AcqRel);
                self.elected_ms.store(now_ms, Ordering::Release);
            }
            // First, so that no error about the change has the counter of before: a client would
            // take it for an old one.
            topology.changed();
            self.primary.store(now, Ordering::Release);
        }
        now
    }
}

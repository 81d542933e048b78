//! Any document as a user and as a role: what is read says what the document says and nothing else,
//! and what cannot be read allows nothing and lets nobody in.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mayfly_auth::{Action, Privilege, Privileges, Role, RoleName, Roles, Target, User, built_in};
use mayfly_value::validate;

fuzz_target!(|data: &[u8]| {
    let Ok(document) = validate(data, 200) else { return };
    if let Ok(user) = User::parse(document) {
        let written = user.to_document();
        let read = User::parse(written.as_doc()).expect("what is written can be read");
        assert_eq!(read.to_document().as_bytes(), written.as_bytes());
        assert_eq!((&read.name, &read.roles, &read.restrictions), (&user.name, &user.roles, &user.restrictions));
        let resolved = Roles::default().resolve(&user.roles);
        let given = user.roles.iter().filter_map(built_in).flatten();
        assert_eq!(Privilege::merge(resolved.privileges), Privilege::merge(given));
    }

    let holder = RoleName::new("holder", "db");
    let mut roles = Roles::default();
    let (name, own) = match Role::parse(document) {
        Ok(role) => {
            let written = role.to_document();
            let read = Role::parse(written.as_doc()).expect("what is written can be read");
            assert_eq!(read.to_document().as_bytes(), written.as_bytes());
            let found = (role.name.clone(), Some(role.clone()));
            roles.insert(role);
            found
        }
        Err(_) => {
            let Some(name) = Role::name_of(document) else { return };
            roles.insert_damaged(name.clone());
            (name, None)
        }
    };
    if built_in(&name).is_some() || name == holder {
        return;
    }
    let role = Role {
        name: holder.clone(),
        privileges: Vec::new(),
        roles: vec![name],
        restrictions: Vec::new(),
    };
    roles.insert(role);
    let resolved = roles.resolve([&holder]);
    let Some(own) = own else {
        assert!(resolved.damaged && resolved.privileges.is_empty());
        let privileges = Privileges::new(&resolved.privileges);
        assert!(!privileges.allows(Target::Collection("db", "c"), Action::Find));
        return;
    };
    let inherited = own.roles.iter().filter_map(built_in).flatten();
    let expected = Privilege::merge(own.privileges.iter().cloned().chain(inherited));
    assert_eq!(Privilege::merge(resolved.privileges), expected);
    assert_eq!(resolved.restrictions.len(), usize::from(!own.restrictions.is_empty()));
});

//! Loads a control and makes it a default, and undoes both.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use brobust_ccload as ccload;
use brobust_host::guardian::{self, End, Guardian, THIS_PROGRAM};
use brobust_host::namespaces::{self, Namespace};
use brobust_host::{locks, pid_namespace, sees_processes_of, Owner, Refusal, Result};
use nix::sys::stat::{umask, Mode};

use super::defaults;
use super::journal::{Journal, Journals};
use super::refused;
use crate::output::remark;

/// These replace a previous default that no longer exists.
const FALLBACKS: [&str; 2] = ["cubic", "reno"];

/// The number of sockets that use a control, for each namespace that has some.
pub type Holders = Vec<(String, usize)>;

/// Loads a control, makes it the default of these namespaces, and returns the journal. If a step fails, the others are
/// undone.
pub fn load(name: &str, settings: &ccload::Settings, default_in: &[Namespace], pinned: bool) -> Result<Journal> {
    let journals = Journals::of_host();
    let _turn = journals.turn()?;
    check(name, settings)?;
    let mut previous = BTreeMap::new();
    for namespace in default_in {
        previous.insert(namespace.inode.to_string(), defaults::of(namespace)?);
    }
    let first =
        Namespace::first().or_else(|_| Namespace::own()).map_or_else(|_| String::new(), |one| one.inode.to_string());
    let (owner, pid_namespace) = (Owner::current().to_string(), pid_namespace());
    let journal = Journal { name: name.into(), pinned, owner, defaults: previous, first, pid_namespace };
    journals.write(&journal)?;
    // Nobody else may write into the directory of pins, whatever the umask is. Somebody else may have made it just now.
    let before = umask(Mode::all());
    umask(before | Mode::S_IWGRP | Mode::S_IWOTH);
    let loaded = ccload::load(name, settings).map_err(not_loaded);
    umask(before);
    let loaded = loaded.and_then(|()| refuse_foreign_pins(&ccload::pin_path(name)));
    let made = loaded.and_then(|()| default_in.iter().try_for_each(|namespace| defaults::set(namespace, name)));
    match made {
        Ok(()) => Ok(journal),
        Err(refusal) => {
            undo(&journals, name)?;
            Err(refusal)
        }
    }
}

/// Refuses a control that could not be loaded now, as far as this can be told without changing anything.
pub fn check(name: &str, settings: &ccload::Settings) -> Result<()> {
    ccload::check(name, settings).map_err(not_loaded)?;
    refuse_foreign_pins(&ccload::pin_path(name))
}

/// Refuses to pin where another user could put links. systemd mounts the BPF file system for root alone, but as the
/// kernel does it by default, and so some container engines, everybody may make a directory of our name in it.
fn refuse_foreign_pins(pin: &Path) -> Result<()> {
    match pin.parent().filter(|directory| directory.symlink_metadata().is_ok()) {
        Some(directory) => locks::refuse_foreign(directory),
        None => Ok(()),
    }
}

/// Says who has loaded a control that is there already, and how it is unloaded.
fn not_loaded(refusal: ccload::Refusal) -> Refusal {
    let ccload::Refusal::NameTaken { name } = &refusal else { return refused(refusal) };
    if ccload::is_module(name) {
        let text = format!("{name} is already a congestion control of this kernel, as a module: remove that first");
        return Refusal::missing_support(text);
    }
    let whose = match Journals::of_host().read(name) {
        Ok(Some(journal)) if journal.pinned => "pinned",
        Ok(Some(journal)) => &match journal.owner.parse::<Owner>() {
            Ok(owner) if sees_processes_of(&journal.pid_namespace) => {
                format!("loaded by a trial of process {}", owner.pid)
            }
            _ => "loaded by a trial".to_owned(),
        },
        Ok(None) => "loaded by a command that is not recorded",
        Err(_) => "loaded by a command whose record cannot be read",
    };
    Refusal::missing_support(format!(
        "{name} is already a congestion control of this kernel, {whose}: `brobust cc unload {name}` unloads it"
    ))
}

/// Restores every default, unregisters the control, removes the journal, and returns which sockets still use it.
///
/// Returns None and changes nothing if another command has already done so: a control that is loaded now may be its
/// own.
pub fn end_trial(journal: &Journal) -> Result<Option<Holders>> {
    let journals = Journals::of_host();
    {
        let _turn = journals.turn()?;
        if !journals.read(&journal.name)?.is_some_and(|found| found.is_of_same_command(journal)) {
            return Ok(None);
        }
        undo(&journals, &journal.name)?;
    }
    Ok(Some(holders(&journal.name)))
}

/// Whether what this command has loaded is still to be undone. Where that cannot be read, it is.
pub fn is_recorded(journal: &Journal) -> bool {
    let found = Journals::of_host().read(&journal.name);
    found.map_or(true, |found| found.is_some_and(|found| found.is_of_same_command(journal)))
}

/// Unloads a control of ours, whichever command loaded it, and returns which sockets still use it. That its journal is
/// damaged keeps nobody from it.
pub fn unload(name: &str) -> Result<Holders> {
    require_loaded(name)?;
    let journals = Journals::of_host();
    journals.require_privilege()?;
    {
        let _turn = journals.turn()?;
        if let Some(file) = journals.remove_damaged(name)? {
            let file = file.display();
            remark(&format!(
                "{file} was damaged: what {name} has replaced is not known, so the default is cubic, or reno"
            ));
        }
        undo(&journals, name)?;
    }
    Ok(holders(name))
}

/// Refuses a control of ours that is not loaded. One that has only a journal counts as loaded.
pub fn require_loaded(name: &str) -> Result<()> {
    let loaded = ccload::loaded();
    if loaded.iter().any(|known| known == name) || Journals::of_host().has(name) {
        return Ok(());
    }
    if ccload::is_module(name) {
        return Err(refused(ccload::Refusal::NotOurs { name: name.to_owned() }));
    }
    let loaded = if loaded.is_empty() { "none".to_owned() } else { loaded.join(", ") };
    Err(Refusal::bad_input(format!("'{name}' is not loaded by brobust; loaded: {loaded}")))
}

/// Returns the journals of trials whose command is gone.
pub fn abandoned() -> Vec<Journal> {
    Journals::of_host().all().into_iter().filter(Journal::is_abandoned).collect()
}

/// Undoes all abandoned trials. Returns the names of their controls, and those that could not be undone with the reason.
pub fn clean() -> (Vec<String>, Vec<String>) {
    let (mut cleaned, mut problems) = (Vec::new(), Vec::new());
    for journal in abandoned() {
        match end_trial(&journal) {
            Ok(Some(_)) => cleaned.push(journal.name),
            Ok(None) => {}
            Err(refusal) => problems.push(format!("{} ({})", journal.name, refusal.text)),
        }
    }
    (cleaned, problems)
}

/// So long after a trial's time its command is taken for stopped (Ctrl-Z) or stuck: more than loading and unloading take,
/// each with the wait for a turn (journal.rs).
const OVERDUE: Duration = Duration::from_secs(90);

/// Starts a process that undoes the trial of this control if our process ends without having done so, or is not at its end
/// although the limit has long passed.
pub fn start_guardian(name: &str, limit: Option<Duration>) -> Result<Guardian> {
    let silence_s = limit.map_or(0.0, |limit| (limit + OVERDUE).as_secs_f64()).to_string();
    Guardian::start(Path::new(THIS_PROGRAM), &["guard", "trial", name, &Owner::current().to_string(), &silence_s])
}

/// In the guardian: waits until the process that started it has ended, or kills it after this silence, then undoes its
/// trial if it is still loaded.
pub fn guard(name: &str, owner: &str, silence: Option<Duration>) -> Result<()> {
    let end = guardian::wait_for_end(silence);
    match Journals::of_host().read(name)? {
        Some(journal) if journal.owner == owner => end_trial(&journal).map(drop)?,
        _ if end == End::Dismissed => {}
        // Killed while it wrote its journal, which goes with a turn.
        _ => drop(Journals::of_host().turn()?),
    }
    if end == End::Stuck {
        remark(&format!("the command was stopped or stuck beyond its time; it was killed, and {name} is unloaded"));
    }
    Ok(())
}

/// Restores every default, unregisters the control, and removes the journal, unless the control is still loaded. Repeating
/// this is harmless.
fn undo(journals: &Journals, name: &str) -> Result<()> {
    restore_defaults(journals, name)?;
    let unloaded = ccload::unload(name);
    // That it is not loaded is no error here.
    if ccload::loaded().iter().any(|known| known == name) {
        unloaded.map_err(refused)?;
    }
    // Whoever has made a namespace may have taken it there again meanwhile; now nobody can any more.
    restore_defaults(journals, name)?;
    // Killed before anything was pinned there, a command leaves it empty, and only an empty one goes.
    let _ = ccload::pin_path(name).parent().map(fs::remove_dir);
    journals.remove(name)
}

/// Gives every namespace whose default is this control its previous default back; a namespace that inherited the
/// control gets the previous default of the first namespace. A control that was loaded later, and has this one as the
/// previous default, will restore the previous default of this one instead.
fn restore_defaults(journals: &Journals, name: &str) -> Result<()> {
    let (previous, first) = journals.read(name)?.map(|journal| (journal.defaults, journal.first)).unwrap_or_default();
    let inherited = previous.get(&first);
    for mut later in journals.all() {
        if later.forget(name, &previous, inherited) {
            journals.write(&later)?;
        }
    }
    // The process through which a namespace was found may end before we enter it; the next attempt finds another.
    for _ in 0..3 {
        let places = defaults::having(name).namespaces;
        if places.is_empty() {
            break;
        }
        for place in places {
            let recorded = previous.get(&place.inode.to_string()).into_iter().chain(inherited).map(String::as_str);
            let wanted: Vec<&str> = recorded.chain(FALLBACKS).filter(|control| *control != name).collect();
            defaults::set_first(&place, &wanted)?;
        }
    }
    Ok(())
}

fn holders(name: &str) -> Holders {
    let found = namespaces::every().namespaces;
    let count = |namespace: &Namespace| defaults::sockets(namespace).get(name).copied();
    found.iter().filter_map(|namespace| Some((namespace.name.to_string(), count(namespace)?))).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{symlink, PermissionsExt};

    use super::refuse_foreign_pins;

    #[test]
    fn a_directory_of_pins_in_which_others_could_put_links_is_refused() {
        let made = tempfile::tempdir().expect("made");
        let pins = made.path().join("brobust");
        let refused = || refuse_foreign_pins(&pins.join("bbr_steady")).unwrap_err().text;
        refuse_foreign_pins(&pins.join("bbr_steady")).expect("it is made later");
        symlink("/etc", &pins).expect("linked");
        assert!(refused().contains("is not a directory"));
        fs::remove_file(&pins).and_then(|()| fs::create_dir(&pins)).expect("made");
        refuse_foreign_pins(&pins.join("bbr_steady")).expect("it is our own");
        fs::set_permissions(&pins, fs::Permissions::from_mode(0o777)).expect("changed");
        assert!(refused().contains("may be written by others"));
    }
}

//! `brobust cc load`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use brobust_cc::Offered;
use brobust_ccload as ccload;
use brobust_host::namespaces::Namespace;
use brobust_host::{reason, Refusal};
use clap::Args;
use serde_json::{json, Value};

use super::journal::Journal;
use super::unload::print_holders;
use super::{changes, clean_up, defaults, not_known, print, CONTROL};
use crate::{end, files, interrupt, numbers, Outcome, Stop};

/// How often a trial looks whether another command has unloaded it.
const LOOK: Duration = Duration::from_millis(500);
/// A hundred years.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

pub const EXAMPLES: &str = "Examples:
  brobust cc load bbr_steady                           # until Ctrl-C
  brobust cc load bbr_steady --default --for 10m       # for ten minutes
  brobust cc load bbr_steady --default --netns web     # in one namespace
  brobust cc load bbr_steady --default --pin           # until a reboot
  brobust cc load brb_bbq --param alpha=5ms --dry-run  # changes nothing";

#[derive(Args)]
pub struct Options {
    /// The congestion control; `brobust cc list` lists them
    #[arg(value_name = CONTROL)]
    name: String,
    /// Set a parameter; `brobust cc params CONTROL` lists them. May be repeated
    #[arg(long, value_name = "PARAMETER=VALUE")]
    param: Vec<String>,
    /// Make it the default for new sockets
    #[arg(long)]
    default: bool,
    /// With --default: in this network namespace (name, path or process id); may be repeated
    #[arg(long, value_name = "NAMESPACE")]
    netns: Vec<String>,
    /// Keep it loaded until `brobust cc unload` or a reboot
    #[arg(long)]
    pin: bool,
    /// Unload it after this time, such as 60s or 10m
    #[arg(long = "for", value_name = "DURATION", value_parser = numbers::duration, conflicts_with = "pin")]
    duration: Option<Duration>,
    /// Only say what would be changed
    #[arg(long)]
    dry_run: bool,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// A request that was checked.
struct Request<'a> {
    name: &'a str,
    settings: ccload::Settings,
    default_in: Vec<Namespace>,
    json: bool,
}

pub fn run(options: &Options) -> Outcome {
    if !options.netns.is_empty() && !options.default {
        let text = "--netns says in which namespaces --default applies; give --default, too";
        return Err(Refusal::bad_input(text).into());
    }
    let name = options.name.as_str();
    ccload::find(name).map_err(|_| not_ours(name))?;
    let settings = settings(name, &options.param)?;
    files::allow_open()?;
    clean_up(options.dry_run);
    let request = Request { name, settings, default_in: places(options.default, &options.netns)?, json: options.json };
    changes::check(name, &request.settings)?;
    if options.dry_run {
        request.print_plan(options.pin)
    } else if options.pin {
        request.pin()
    } else {
        request.try_it(options.duration)
    }
}

impl Request<'_> {
    fn pin(&self) -> Outcome {
        // A signal in the middle must not leave half of it.
        interrupt::catch();
        let journal = changes::load(self.name, &self.settings, &self.default_in, true)?;
        if interrupt::is_interrupted() {
            changes::end_trial(&journal)?;
            return Err(Stop::Interrupted);
        }
        let name = self.name;
        self.print_loaded(&journal, &format!("loaded {name}; `brobust cc unload {name}` unloads it"))
    }

    /// Loads it until the limit or a signal, and unloads it, whatever happens in between.
    fn try_it(&self, limit: Option<Duration>) -> Outcome {
        interrupt::catch();
        let mut guardian = changes::start_guardian(self.name, limit)?;
        let journal = match changes::load(self.name, &self.settings, &self.default_in, false) {
            Ok(journal) => journal,
            Err(refusal) => {
                guardian.dismiss();
                return Err(refusal.into());
            }
        };
        // The time begins now. Without a guardian the trial goes on, as it does where somebody kills it later.
        let _ = guardian.say_alive();
        let waited = self.wait(&journal, limit);
        // If this fails, the guardian tries it again.
        let holders = changes::end_trial(&journal)?;
        guardian.dismiss();
        let status = match waited {
            // Another command has unloaded it before its time.
            Ok(()) => u8::from(holders.is_none()),
            Err(Stop::Interrupted) => 130,
            Err(stop) => return Err(stop),
        };
        print_holders(self.json, self.name, holders.as_ref())?;
        end(status)
    }

    /// Says that it is loaded, and waits until the limit, a signal, or another command that unloads it.
    fn wait(&self, journal: &Journal, limit: Option<Duration>) -> Outcome {
        let name = self.name;
        let until = limit.map_or_else(String::new, |limit| format!("in {} s, or ", limit.as_secs_f64()));
        let text = format!("loaded {name}; it is unloaded {until}with Ctrl-C");
        self.print_loaded(journal, &text)?;
        let due = Instant::now() + limit.unwrap_or(FOR_EVER);
        while Instant::now() < due && changes::is_recorded(journal) {
            interrupt::sleep_until(due.min(Instant::now() + LOOK))?;
        }
        Ok(())
    }

    /// Prints what was loaded: this line, and one for each default that was changed.
    fn print_loaded(&self, journal: &Journal, line: &str) -> Outcome {
        let (mut lines, mut changed) = (vec![line.to_owned()], Vec::new());
        for namespace in &self.default_in {
            let before = &journal.defaults[&namespace.inode.to_string()];
            lines.push(format!("changed {}", self.change(namespace, before)));
            changed.push(self.change_record(namespace, before));
        }
        let record = json!({"loaded": self.name, "pinned": journal.pinned, "defaults": changed});
        print(self.json, &record, &lines.join("\n"))
    }

    /// Says what is changed in a namespace whose default was another control before.
    fn change(&self, namespace: &Namespace, before: &str) -> String {
        format!("net.ipv4.tcp_congestion_control of {} from {before} to {}", namespace.name, self.name)
    }

    fn change_record(&self, namespace: &Namespace, before: &str) -> Value {
        json!({"namespace": namespace.name.to_string(), "from": before, "to": self.name})
    }

    fn print_plan(&self, pin: bool) -> Outcome {
        let name = self.name;
        let offered = Offered::find(name).map_err(|error| Refusal::bad_input(error.to_string()))?.params();
        let shown = |(name, value): &(String, u32)| {
            let param = offered.iter().find(|param| param.name == name)?;
            Some((param.name, param.show(*value)))
        };
        let params: BTreeMap<&str, String> = self.settings.params.iter().filter_map(shown).collect();
        let set: String = params.iter().map(|(param, value)| format!(", {param} = {value}")).collect();
        let until = if pin { "" } else { " until the command ends" };
        let mut lines = vec![
            format!("would register {name}{set}"),
            format!("would pin it at {}{until}", ccload::pin_path(name).display()),
        ];
        let mut changed = Vec::new();
        for namespace in &self.default_in {
            let before = defaults::of(namespace)?;
            lines.push(format!("would change {}", self.change(namespace, &before)));
            changed.push(self.change_record(namespace, &before));
        }
        let record = json!({"would_load": name, "params": params, "defaults": changed, "pin": pin});
        print(self.json, &record, &lines.join("\n"))
    }
}

/// Refuses what is none of our controls, with what may have been meant.
fn not_ours(name: &str) -> Refusal {
    if ccload::available().iter().any(|known| known == name) {
        let instead = match name {
            "bbr" => "; its repair is bbr_steady".to_owned(),
            _ => format!("; sysctl net.ipv4.tcp_congestion_control={name} makes it the default"),
        };
        return Refusal::bad_input(format!("{name} is the kernel's own and there already: nothing to load{instead}"));
    }
    if let Some((control, params)) = name.split_once(':').filter(|(control, _)| ccload::find(control).is_ok()) {
        let params = params.split(':').map(|param| format!(" --param {param}")).collect::<String>();
        let text = format!("{name}: `cc load` takes parameters apart from the name; write {control}{params}");
        return Refusal::bad_input(text);
    }
    not_known(name, || {
        let mut known: Vec<&str> = ccload::names().collect();
        // Shadows are for comparisons, and nobody's first choice.
        known.sort_by_key(|control| (control.ends_with("_shadow"), *control));
        format!("there is no control named {name}; the controls are {}", known.join(", "))
    })
}

fn places(is_default: bool, given: &[String]) -> Result<Vec<Namespace>, Refusal> {
    if !is_default {
        return Ok(Vec::new());
    }
    if given.is_empty() {
        let own = Namespace::own();
        let own = own.map_err(|error| Refusal::missing_support(format!("network namespaces: {}", reason(&error))))?;
        return Ok(vec![own]);
    }
    let mut found: Vec<Namespace> = Vec::new();
    for given in given {
        let one = Namespace::find(given).map_err(|refusal| Refusal::bad_input(format!("--netns: {refusal}")))?;
        // It may be given twice, by its name and by its path.
        if !found.iter().any(|known| known.inode == one.inode) {
            found.push(one);
        }
    }
    Ok(found)
}

/// Returns parameters given as NAME=VALUE in the form in which they are loaded.
fn settings(name: &str, given: &[String]) -> Result<ccload::Settings, Refusal> {
    let setting = |text: &String| match text.split_once('=') {
        Some((param, value)) if !param.is_empty() && !value.is_empty() => Ok((param.to_owned(), value.to_owned())),
        _ => Err(Refusal::bad_input(format!("--param: '{text}' is not a setting; write PARAMETER=VALUE"))),
    };
    let given = given.iter().map(setting).collect::<Result<Vec<_>, _>>()?;
    let settings = Offered::find(name).and_then(|offered| offered.settings(&given));
    let settings = settings.map_err(|error| Refusal::bad_input(format!("--param: {error}")))?;
    let params = settings.into_iter().map(|(param, value)| (param.to_owned(), value)).collect();
    Ok(ccload::Settings { params, ..ccload::Settings::default() })
}

#[cfg(test)]
mod tests {
    use super::settings;

    #[test]
    fn parameters_are_read_in_the_units_of_people() {
        let read = settings("brb_bbq", &["alpha=5ms".into()]).expect("it has that one");
        assert_eq!(read.params, [("bbq_alpha".to_owned(), 5000)]);
        let refused = |name: &str, given: &str| settings(name, &[given.to_owned()]).unwrap_err().text;
        assert!(refused("brb_bbq", "alpha").contains("write PARAMETER=VALUE"));
        assert!(refused("brb_bbq", "alpha=3").contains("1us to 10000ms"));
        assert!(refused("brb_bbq", "alpah=3ms").contains("it has"));
        assert!(refused("cubic", "alpha=3ms").contains("cubic is no control of ours"));
    }
}

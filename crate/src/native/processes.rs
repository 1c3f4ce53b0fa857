//! Processes as the system shows them: whether one lives, and whether it is still the same one. Twin
//! of `js/storage/processes.ts`.

use std::fs;
use std::process::{self, Command, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};

/// What tells a process from every other, now and later.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub pid: u32,
    /// When it started, in whatever form the system tells.
    pub started: Option<String>,
    /// Its thread, where threads count: those of JavaScript.
    pub thread: Option<String>,
    /// One for each start of the machine.
    pub boot: Option<String>,
    /// The space in which process numbers count.
    pub space: Option<String>,
    pub host: String,
}

/// What is known of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Alive,
    /// For certain.
    Dead,
    /// Nothing of it can be seen here, as with another container or machine.
    Unseen,
}

/// This process. A store may go from thread to thread, so it names none.
pub(super) fn this() -> &'static Identity {
    static KNOWN: OnceLock<Identity> = OnceLock::new();
    KNOWN.get_or_init(|| {
        let read = |path: &str| fs::read_to_string(path).ok().map(|text| text.trim().to_string());
        let pid = process::id();
        let is_linux = cfg!(target_os = "linux");
        let space = fs::read_link("/proc/self/ns/pid").ok();
        Identity {
            pid,
            started: if is_linux { stat_of("self").map(|stat| stat.0) } else { by_ps(pid) },
            thread: None,
            boot: if is_linux { read("/proc/sys/kernel/random/boot_id") } else { None },
            space: space.and_then(|space| space.to_str().map(ToString::to_string)),
            host: read("/proc/sys/kernel/hostname").unwrap_or_default(),
        }
    })
}

impl Identity {
    pub(super) fn to_json(&self) -> Value {
        json!({
            "pid": self.pid,
            "started": self.started,
            "thread": self.thread,
            "boot": self.boot,
            "space": self.space,
            "host": self.host,
        })
    }

    pub(super) fn from_json(value: &Value) -> Option<Identity> {
        let text = |name: &str| value.get(name)?.as_str().map(ToString::to_string);
        let pid = u32::try_from(value.get("pid")?.as_u64()?).ok().filter(|pid| *pid > 0)?;
        Some(Identity {
            pid,
            started: text("started"),
            thread: text("thread"),
            boot: text("boot"),
            space: text("space"),
            host: text("host").unwrap_or_default(),
        })
    }
}

/// Whether that process and its thread live.
pub(super) fn life_of(other: &Identity) -> Life {
    let here = this();
    match (&other.boot, &here.boot) {
        (Some(theirs), Some(ours)) if theirs != ours => {
            return if other.host == here.host { Life::Dead } else { Life::Unseen };
        }
        (Some(_), Some(_)) if other.space != here.space => return Life::Unseen,
        (theirs, ours) if theirs != ours => return Life::Unseen,
        _ => {}
    }
    let started = match find(other.pid) {
        Found::Nothing => return Life::Dead,
        Found::Unseen => return Life::Unseen,
        Found::Process(started) => started,
    };
    if other.started.is_some() && started.is_some() && other.started != started {
        return Life::Dead;
    }
    life_of_thread(other, here)
}

fn life_of_thread(other: &Identity, here: &Identity) -> Life {
    let Some((id, started)) = other.thread.as_deref().and_then(|thread| thread.split_once(' '))
    else {
        // One of this process is known by its lock, if it is ours, or only by what it does.
        return if other.pid == here.pid { Life::Unseen } else { Life::Alive };
    };
    let process = stat_of(&other.pid.to_string());
    let thread = stat_of(&format!("{}/task/{id}", other.pid));
    let lives = thread.is_some_and(|(since, ended)| since == started && !ended);
    if process.is_some() && !lives { Life::Dead } else { Life::Alive }
}

enum Found {
    Process(Option<String>),
    Nothing,
    Unseen,
}

fn find(pid: u32) -> Found {
    match stat_of(&pid.to_string()) {
        Some((_, true)) => return Found::Nothing,
        Some((started, false)) => return Found::Process(Some(started)),
        // Not seen is not dead: /proc may hide the processes of others. A signal knows.
        None => {}
    }
    let asked = Command::new("kill")
        .args(["-0", &pid.to_string()])
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output();
    match asked {
        Err(_) => Found::Unseen,
        Ok(told) if String::from_utf8_lossy(&told.stderr).contains("No such process") => {
            Found::Nothing
        }
        Ok(_) if cfg!(target_os = "linux") => Found::Process(None),
        Ok(_) => Found::Process(by_ps(pid)),
    }
}

/// From /proc: when a process or thread started, in ticks since boot, and whether it has ended.
fn stat_of(which: &str) -> Option<(String, bool)> {
    let stat = fs::read_to_string(format!("/proc/{which}/stat")).ok()?;
    // Field 2 is the program's name in parentheses and may hold spaces and parentheses of its own.
    let fields: Vec<&str> = stat.get(stat.rfind(')')? + 2..)?.split(' ').collect();
    // A zombie holds no file any more; only its parent has not asked for its end yet.
    let ended = matches!(*fields.first()?, "Z" | "X" | "x");
    Some(((*fields.get(19)?).to_string(), ended))
}

fn by_ps(pid: u32) -> Option<String> {
    let asked = Command::new("ps")
        .args(["-o", "lstart=", "-p", &pid.to_string()])
        .envs([("LC_ALL", "C"), ("TZ", "UTC")])
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let told = String::from_utf8_lossy(&asked.stdout).trim().to_string();
    (!told.is_empty()).then_some(told)
}

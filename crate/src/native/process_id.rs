//! Processes as the system shows them: whether one lives, and whether it is still the same one. Twin
//! of `js/storage/node/process-identity.ts`.

use std::fs;
use std::process::{self, Command, Stdio};
use std::sync::OnceLock;

/// What tells a process from every other, now and later. All that is only ever compared is a fingerprint,
/// so that the whole is short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub pid: u32,
    /// When it started; tells reused numbers apart.
    pub started: Option<String>,
    /// Its thread, as number and start, where threads count: those of JavaScript.
    pub thread: Option<String>,
    /// One for each start of each machine.
    pub boot: Option<String>,
    /// The space in which process numbers count.
    pub space: Option<String>,
    /// Of the machine's name. It decides nothing.
    pub host: Option<String>,
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
        let pid = process::id();
        let host = host_name().map(|name| fingerprint(&name));
        let [started, boot, space] = if cfg!(target_os = "linux") {
            let print_of = |path: &str| Some(fingerprint(fs::read_to_string(path).ok()?.trim()));
            [
                stat_of("self").map(|stat| stat.0),
                print_of("/proc/sys/kernel/random/boot_id"),
                own_space(pid),
            ]
        } else if cfg!(target_os = "macos") {
            // Each start has a name, and processes are numbered in one space only.
            let boot = said_by("sysctl", &["-n", "kern.bootsessionuuid"]);
            [by_ps(pid), boot, Some("0".into())]
        } else {
            [by_ps(pid), None, None]
        };
        Identity { pid, started, thread: None, boot, space, host }
    })
}

/// A folder /proc of another space has other processes under these numbers: then nobody can be seen.
fn own_space(pid: u32) -> Option<String> {
    let is_ours = fs::read_link("/proc/self").ok()?.to_str()? == pid.to_string();
    let space = fs::read_link("/proc/self/ns/pid").ok().filter(|_| is_ours)?;
    Some(fingerprint(space.to_str()?))
}

impl Identity {
    /// Its fields in one line, of at most 50 letters where processes are counted in seven digits.
    pub(super) fn to_text(&self) -> String {
        let Identity { pid, started, thread, boot, space, host } = self;
        let fields =
            [started, thread, boot, space, host].map(|field| field.as_deref().unwrap_or("-"));
        format!("{pid} {}", fields.join(" "))
    }

    /// What `to_text` made; none for anything else.
    pub(super) fn from_text(text: &str) -> Option<Identity> {
        let mut fields = text.split(' ');
        let pid = fields.next()?.parse().ok().filter(|pid| *pid > 0)?;
        let mut next = || fields.next().map(|field| (field != "-").then(|| field.to_string()));
        let (started, thread, boot, space, host) = (next()?, next()?, next()?, next()?, next()?);
        fields.next().is_none().then_some(Identity { pid, started, thread, boot, space, host })
    }
}

/// The name of this machine.
pub(super) fn host_name() -> Option<String> {
    Some(fs::read_to_string("/proc/sys/kernel/hostname").ok()?.trim().to_string())
}

/// Six letters that stand for a text where it is only compared: its FNV-1a of 32 bits, but for the highest.
fn fingerprint(text: &str) -> String {
    let hash = text
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let mut left = hash % 36_u32.pow(6);
    let mut letters = Vec::new();
    loop {
        letters.extend(char::from_digit(left % 36, 36));
        left /= 36;
        if left == 0 {
            return letters.into_iter().rev().collect();
        }
    }
}

/// Whether that process and its thread live.
pub(super) fn life_of(other: &Identity) -> Life {
    let here = this();
    // Names of hosts prove nothing: two machines may have the same, and one may change its own.
    let is_here = here.boot.is_some() && other.boot == here.boot;
    if !is_here || here.space.is_none() || other.space != here.space {
        return Life::Unseen;
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
    let Some((id, started)) = other.thread.as_deref().and_then(|thread| thread.split_once(':'))
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
    Some((fingerprint(fields.get(19)?), ended))
}

fn by_ps(pid: u32) -> Option<String> {
    said_by("ps", &["-o", "lstart=", "-p", &pid.to_string()])
}

/// The fingerprint of what a program says; none for nothing.
fn said_by(program: &str, args: &[&str]) -> Option<String> {
    let asked = Command::new(program)
        .args(args)
        .envs([("LC_ALL", "C"), ("TZ", "UTC")])
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let told = String::from_utf8_lossy(&asked.stdout).trim().to_string();
    (!told.is_empty()).then(|| fingerprint(&told))
}

//! Identities of processes: whether one is alive, and whether it is still the same one. See also
//! `js/storage/node/process-identity.ts`.

use std::fs;
use std::process::{self, Command, Stdio};
use std::sync::OnceLock;

/// The identity of a process, unique over time. Values that are only compared are stored as
/// fingerprints to keep the text short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub pid: u32,
    /// When it started; distinguishes reused process ids.
    pub started: Option<String>,
    /// Its thread, as id and start time, if threads hold locks separately, as in JavaScript.
    pub thread: Option<String>,
    /// Distinguishes each boot of each machine.
    pub boot: Option<String>,
    /// The pid namespace.
    pub namespace: Option<String>,
    /// The host name. It is only informative.
    pub host: Option<String>,
}

/// The state of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProcessState {
    Alive,
    /// It is certainly dead.
    Dead,
    /// It cannot be checked from here, for example in another container or machine.
    Unknown,
}

/// This process. A store may be sent between threads, so no thread is given.
pub(super) fn current() -> &'static Identity {
    static IDENTITY: OnceLock<Identity> = OnceLock::new();
    IDENTITY.get_or_init(|| {
        let pid = process::id();
        let host = host_name().map(|name| fingerprint(&name));
        let [started, boot, namespace] = if cfg!(target_os = "linux") {
            let fingerprint_of =
                |path: &str| Some(fingerprint(fs::read_to_string(path).ok()?.trim()));
            [
                stat_of("self").map(|stat| stat.0),
                fingerprint_of("/proc/sys/kernel/random/boot_id"),
                pid_namespace(pid),
            ]
        } else if cfg!(target_os = "macos") {
            // Each boot has an id, and there is only one pid namespace.
            let boot = output_fingerprint("sysctl", &["-n", "kern.bootsessionuuid"]);
            [start_by_ps(pid), boot, Some("0".into())]
        } else {
            [start_by_ps(pid), None, None]
        };
        Identity { pid, started, thread: None, boot, namespace, host }
    })
}

/// If /proc belongs to another pid namespace, other processes have these ids, and no process can be
/// checked.
fn pid_namespace(pid: u32) -> Option<String> {
    let is_ours = fs::read_link("/proc/self").ok()?.to_str()? == pid.to_string();
    let namespace = fs::read_link("/proc/self/ns/pid").ok().filter(|_| is_ours)?;
    Some(fingerprint(namespace.to_str()?))
}

impl Identity {
    /// The fields in one line, of at most 50 characters if process ids have up to seven digits.
    pub(super) fn to_text(&self) -> String {
        let Identity { pid, started, thread, boot, namespace, host } = self;
        let fields =
            [started, thread, boot, namespace, host].map(|field| field.as_deref().unwrap_or("-"));
        format!("{pid} {}", fields.join(" "))
    }

    /// Parses the result of `to_text`; none for anything else.
    pub(super) fn from_text(text: &str) -> Option<Identity> {
        let mut fields = text.split(' ');
        let pid = fields.next()?.parse().ok().filter(|pid| *pid > 0)?;
        let mut next = || fields.next().map(|field| (field != "-").then(|| field.to_string()));
        let (started, thread, boot, namespace, host) =
            (next()?, next()?, next()?, next()?, next()?);
        fields.next().is_none().then_some(Identity { pid, started, thread, boot, namespace, host })
    }
}

/// The host name of this machine.
pub(super) fn host_name() -> Option<String> {
    Some(fs::read_to_string("/proc/sys/kernel/hostname").ok()?.trim().to_string())
}

/// Six letters that represent a text in comparisons: its 32-bit FNV-1a without the highest bits.
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

/// Whether a process and its thread are alive.
pub(super) fn state_of(other: &Identity) -> ProcessState {
    let own = current();
    // Host names prove nothing: two machines may have the same, and one may change its name.
    let is_same_machine = own.boot.is_some() && other.boot == own.boot;
    if !is_same_machine || own.namespace.is_none() || other.namespace != own.namespace {
        return ProcessState::Unknown;
    }
    let started = match find(other.pid) {
        Found::Ended => return ProcessState::Dead,
        Found::Unknown => return ProcessState::Unknown,
        Found::Process(started) => started,
    };
    if other.started.is_some() && started.is_some() && other.started != started {
        return ProcessState::Dead;
    }
    state_of_thread(other, own)
}

fn state_of_thread(other: &Identity, own: &Identity) -> ProcessState {
    let Some((id, started)) = other.thread.as_deref().and_then(|thread| thread.split_once(':'))
    else {
        // A lock of this process is recognized by its content; otherwise its state is unknown.
        return if other.pid == own.pid { ProcessState::Unknown } else { ProcessState::Alive };
    };
    let process = stat_of(&other.pid.to_string());
    let thread = stat_of(&format!("{}/task/{id}", other.pid));
    let is_alive = thread.is_some_and(|(since, ended)| since == started && !ended);
    if process.is_some() && !is_alive { ProcessState::Dead } else { ProcessState::Alive }
}

enum Found {
    Process(Option<String>),
    Ended,
    Unknown,
}

fn find(pid: u32) -> Found {
    match stat_of(&pid.to_string()) {
        Some((_, true)) => return Found::Ended,
        Some((started, false)) => return Found::Process(Some(started)),
        // Invisible does not mean dead: /proc may hide processes of other users. A signal finds
        // out.
        None => {}
    }
    let result = Command::new("kill")
        .args(["-0", &pid.to_string()])
        .env("LC_ALL", "C")
        .stdin(Stdio::null())
        .output();
    match result {
        Err(_) => Found::Unknown,
        Ok(output) if String::from_utf8_lossy(&output.stderr).contains("No such process") => {
            Found::Ended
        }
        Ok(_) if cfg!(target_os = "linux") => Found::Process(None),
        Ok(_) => Found::Process(start_by_ps(pid)),
    }
}

/// The start time of a process or thread from /proc, in ticks since boot, and whether it has ended.
fn stat_of(which: &str) -> Option<(String, bool)> {
    let stat = fs::read_to_string(format!("/proc/{which}/stat")).ok()?;
    // Field 2 is the program's name in parentheses, which may contain spaces and parentheses.
    let fields: Vec<&str> = stat.get(stat.rfind(')')? + 2..)?.split(' ').collect();
    // A zombie has no open files any more; only its parent has not collected its exit status yet.
    let ended = matches!(*fields.first()?, "Z" | "X" | "x");
    Some((fingerprint(fields.get(19)?), ended))
}

fn start_by_ps(pid: u32) -> Option<String> {
    output_fingerprint("ps", &["-o", "lstart=", "-p", &pid.to_string()])
}

/// The fingerprint of a program's output; none if that is empty.
fn output_fingerprint(program: &str, args: &[&str]) -> Option<String> {
    let result = Command::new(program)
        .args(args)
        .envs([("LC_ALL", "C"), ("TZ", "UTC")])
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let output = String::from_utf8_lossy(&result.stdout).trim().to_string();
    (!output.is_empty()).then(|| fingerprint(&output))
}

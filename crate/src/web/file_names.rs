//! Conversion of database names to file names, as in the TypeScript package: see `js/storage/file-names.ts`.

use crate::native::Error;
use crate::schema::Malformed;

/// The longest file name without suffix.
const MAX_NAME_BYTES: usize = 200;

/// The suffix of database files.
const SUFFIX: &str = ".varve";

/// The additional suffix of a shadow file, in which the package makes the replacement of a database.
pub(super) const SHADOW_SUFFIX: &str = ".next";

/// The file name of a database.
///
/// Lower-case ASCII letters, digits, "-" and "_" are unchanged, and "." does anywhere but in front; every other byte
/// becomes %XX. A name that looks like a path or a file is refused, unless it is the file name of a database with such a
/// name.
pub(super) fn file_name(name: &str) -> Result<String, Error> {
    let file = escape_name(name, "database name")? + SUFFIX;
    if !is_misleading(name) {
        return Ok(file);
    }
    match unescaped(name) {
        Some(inside) if is_misleading(&inside) => Ok(name.to_string()),
        _ => Err(refused(&advice(name, &file))),
    }
}

/// The names of the folders in a path that they are separated in by "/".
pub(super) fn folder_names(path: &str) -> Result<Vec<String>, Error> {
    if path.is_empty() {
        return Ok(Vec::new());
    }
    path.split('/')
        .map(|part| match part {
            "" | "." | ".." => Err(refused(&format!(
                "a folder must be names separated by \"/\", without \".\" and \"..\", not {path:?}"
            ))),
            part => escape_name(part, "folder name"),
        })
        .collect()
}

/// Whether a name looks like a path or a file.
fn is_misleading(name: &str) -> bool {
    name.contains(['/', '\\']) || matches!(name, "." | "..") || without_suffix(name).is_some()
}

/// A name without ".varve" at its end, in whatever case; none if it does not end so.
fn without_suffix(name: &str) -> Option<&str> {
    let (stem, end) = name.split_at_checked(name.len().checked_sub(SUFFIX.len())?)?;
    end.eq_ignore_ascii_case(SUFFIX).then_some(stem)
}

fn advice(name: &str, file: &str) -> String {
    let (folder, mut stem) = match name.rsplit_once(['/', '\\']) {
        Some((folder, stem)) => (Some(folder), stem),
        None => (None, name),
    };
    while let Some(shorter) = without_suffix(stem).filter(|shorter| !shorter.is_empty()) {
        stem = shorter;
    }
    if matches!(stem, "" | "." | "..") {
        stem = "shop";
    }
    let parts = folder.unwrap_or_default().split(['/', '\\']);
    let parts: Vec<&str> = parts.filter(|part| !matches!(*part, "" | "." | "..")).collect();
    let location = match folder {
        Some(_) => format!(" and the folder {:?} to open_in", parts.join("/")),
        None => String::new(),
    };
    format!(
        "a database's name is no path and has no \".varve\" at its end: for {name:?} give the name {stem:?}{location} (a \
         file that was made under this name goes by {file:?})"
    )
}

/// Decodes a file name; none if it is not that of a database.
fn unescaped(file: &str) -> Option<String> {
    let mut rest = file.strip_suffix(SUFFIX)?.bytes();
    let mut bytes = Vec::new();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let digits = [rest.next()?, rest.next()?];
        bytes.push(u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?);
    }
    let name = String::from_utf8(bytes).ok()?;
    // A file name with another escaping was not written by varve.
    (escape_name(&name, "database name").ok()? + SUFFIX == file).then_some(name)
}

/// Escapes one name or folder. `what` names it in messages.
fn escape_name(name: &str, what: &str) -> Result<String, Error> {
    if name.is_empty() {
        return Err(refused(&format!("a {what} must not be empty")));
    }
    let mut escaped = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' => escaped.push(byte.into()),
            b'.' if !escaped.is_empty() => escaped.push('.'),
            byte => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    if escaped.len() > MAX_NAME_BYTES {
        return Err(refused(&format!(
            "a {what} may take at most {MAX_NAME_BYTES} bytes, and this one takes {} (characters other than a-z, 0-9, \
             dash, underscore and dot count three per byte)",
            escaped.len()
        )));
    }
    Ok(escaped)
}

fn refused(reason: &str) -> Error {
    Error::BadArgument(Malformed::new("", reason))
}

/** Output formats: text that is safe for a terminal, numbers, sizes and durations. */

const strict = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Decodes bytes as text; `undefined` if they are not UTF-8. */
export function textOf(bytes: Uint8Array): string | undefined {
  try {
    return strict.decode(bytes);
  } catch {
    return undefined;
  }
}

/**
 * Characters that must not be written to a terminal: control characters (ESC and those above 0x7F included), changes of
 * the text direction, zero-width characters, line separators, and unassigned code points.
 */
const UNSAFE = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cn}\p{Cs}]/gu;

const NAMED = new Map([
  ["\n", "\\n"],
  ["\r", "\\r"],
  ["\t", "\\t"],
]);

function escaped(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  const hex = code.toString(16).padStart(2, "0");
  return NAMED.get(character) ?? (code < 0x80 ? `\\x${hex}` : `\\u{${hex}}`);
}

/** Escapes everything in a text that a terminal would interpret. Line ends stay. */
export function escapeControls(text: string): string {
  return text.replace(UNSAFE, (character) => (character === "\n" ? "\n" : escaped(character)));
}

/** Bytes in one line, so that different bytes look different: `\x1b`, `\u{202e}`, `\xff`, `\\`. */
export function oneLine(bytes: Uint8Array): string {
  const text = textOf(bytes);
  if (text !== undefined) return oneLineOf(text);
  let shown = "";
  for (let at = 0; at < bytes.length; ) {
    const length = lengthOfCharacter(bytes[at] ?? 0);
    const character = textOf(bytes.subarray(at, at + length));
    if (character === undefined) {
      shown += `\\x${(bytes[at] ?? 0).toString(16).padStart(2, "0")}`;
      at += 1;
    } else {
      shown += oneLineOf(character);
      at += length;
    }
  }
  return shown;
}

function oneLineOf(text: string): string {
  return text.replaceAll("\\", "\\\\").replace(UNSAFE, escaped);
}

function lengthOfCharacter(first: number): number {
  if (first < 0x80) return 1;
  if (first < 0xe0) return 2;
  return first < 0xf0 ? 3 : 4;
}

/** The first bytes of a value in one line, with the size of what is left out. */
export function beginning(bytes: Uint8Array, most: number): string {
  if (bytes.length <= most) return oneLine(bytes);
  let end = most;
  // Do not cut a character in half.
  while (end > most - 4 && ((bytes[end] ?? 0) & 0xc0) === 0x80) end -= 1;
  return `${oneLine(bytes.subarray(0, end))}… (${size(bytes.length)})`;
}

/** 1234567 as "1,234,567". */
export function number(count: number): string {
  return count.toLocaleString("en-US");
}

/** "1 key", "2 keys". */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${number(count)} ${count === 1 ? one : many}`;
}

const UNITS = ["KB", "MB", "GB", "TB"] as const;

/** "812 bytes", "4.2 MB". */
export function size(bytes: number): string {
  if (bytes < 1000) return counted(bytes, "byte");
  let [scaled, unit] = [bytes / 1000, 0];
  // If a value rounds to 1000, use the next unit.
  while (scaled >= 999.5 && unit < UNITS.length - 1) {
    scaled /= 1000;
    unit += 1;
  }
  return `${scaled < 99.95 ? scaled.toFixed(1) : Math.round(scaled)} ${UNITS[unit]}`;
}

/** "18 ms", "2.4 s", "3 min 5 s". */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.max(1, Math.round(ms))} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  return `${number(Math.floor(seconds / 60))} min ${seconds % 60} s`;
}

/** Formats pairs of a name and a text in two columns. */
export function table(rows: readonly (readonly [string, string])[]): string {
  const width = Math.max(...rows.map(([name]) => name.length));
  return rows.map(([name, value]) => `${name.padEnd(width)}  ${value}\n`).join("");
}

/**
 * Bytes as a field of a JSON document: text under the name itself, other bytes in base64 under the name with the suffix
 * "Base64".
 */
export function field(name: string, bytes: Uint8Array): Record<string, string> {
  const text = textOf(bytes);
  return text === undefined ? { [`${name}Base64`]: base64(bytes) } : { [name]: text };
}

export function base64(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length).toString("base64");
}

/** Decodes base64; `undefined` if it is invalid. */
export function fromBase64(text: string): Uint8Array | undefined {
  const bytes = new Uint8Array(Buffer.from(text, "base64"));
  return base64(bytes).replace(/=+$/, "") === text.replace(/=+$/, "") ? bytes : undefined;
}

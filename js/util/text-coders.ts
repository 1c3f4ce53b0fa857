/**
 * The platform's UTF-8 encoder and decoder. The realm in which Jest runs programs with jsdom has none; there those of
 * Node are used.
 */

import { VarveError } from "../errors/base.js";

interface Coders {
  readonly TextEncoder: new () => TextEncoder;
  readonly TextDecoder: new (label: string, options?: TextDecoderOptions) => TextDecoder;
}

function missing(): never {
  throw new VarveError(
    "VARVE_TEXT_ENCODER",
    "There is no TextEncoder here. Set TextEncoder and TextDecoder on globalThis.",
  );
}

/** Encodes ASCII without a `TextEncoder`, so that importing the package works without one; other text then fails. */
function Missing() {
  const encode = (text: string) =>
    Uint8Array.from(text, (letter) => (letter < "\x80" ? letter.charCodeAt(0) : missing()));
  return { encode, encodeInto: missing, decode: missing };
}

function coders(): Coders {
  const here = globalThis as unknown as Partial<Coders> & {
    readonly process?: { getBuiltinModule?(name: string): Coders };
  };
  if (here.TextEncoder !== undefined) return here as Coders;
  const missing = { TextEncoder: Missing, TextDecoder: Missing } as unknown as Coders;
  return here.process?.getBuiltinModule?.("util") ?? missing;
}

export const encoder: TextEncoder = /* @__PURE__ */ new (coders().TextEncoder)();

/** Makes a new decoder, as `new TextDecoder` does. */
export function newDecoder(label = "utf-8", options?: TextDecoderOptions): TextDecoder {
  return new (coders().TextDecoder)(label, options);
}

/** The shared decoder. It throws for bytes that are not UTF-8. */
export const decoder: TextDecoder = /* @__PURE__ */ newDecoder("utf-8", {
  fatal: true,
  ignoreBOM: true,
});

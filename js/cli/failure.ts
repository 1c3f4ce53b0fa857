/** What a command comes to, and how failures are told. */

/** The exit codes. They are documented in the help text and never change. */
export const EXIT = {
  /** The command did what it was asked. */
  well: 0,
  /** The answer is no: there is no such key, or there is damage. */
  no: 1,
  /** The command was not understood. */
  usage: 2,
  /** The file cannot be read, or what is asked for cannot be written. */
  unreadable: 3,
} as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** Ends the command with a message for its user. */
export class Failure extends Error {
  constructor(
    readonly exit: ExitCode,
    message: string,
  ) {
    super(message);
  }
}

/** Whoever read the output has seen enough: nothing is wrong. */
export class OutputClosed extends Error {}

/** The code of an error of the package or the platform. */
export function codeOf(error: unknown): unknown {
  return (error as { code?: unknown } | null)?.code;
}

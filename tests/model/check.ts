/**
 * The entry point of the tests: runs the program of a seed, and on a failure shrinks it and reports it in full,
 * with the command that repeats it.
 */

import { programOf } from "./author.js";
import type { Environment } from "./machine.js";
import { print } from "./print.js";
import type { Abilities, Operation, Program } from "./program.js";
import { type Failure, run } from "./run.js";
import { type Limits, shrink } from "./shrink.js";

/** A failed program, and the smallest failing one found. */
export interface Finding {
  readonly program: Program;
  readonly failure: Failure;
  readonly small: Program;
  readonly smallFailure: Failure | undefined;
}

const LIMITS: Limits = { tries: 5_000, ms: 60_000 };

/** Runs a program. If it fails, shrinks it, with a new environment for each run. */
export async function find(
  program: Program,
  environment: () => Environment,
  limits = LIMITS,
): Promise<Finding | undefined> {
  const failure = await run(program, environment());
  if (failure === undefined) return undefined;
  const operations = program.operations.slice(0, failure.at + 1);
  const fails = async (smaller: Program) => (await run(smaller, environment())) !== undefined;
  const small = await shrink({ ...program, operations }, fails, limits);
  return { program, failure, small, smallFailure: await run(small, environment()) };
}

/** Runs the program of a seed. Returns its number of operations, or throws the finding. */
export async function check(
  seed: number,
  abilities: Abilities,
  environment: () => Environment,
  { length, again }: { length?: number; again: string },
): Promise<number> {
  const program = programOf(seed, abilities, length);
  const finding = await find(program, environment);
  if (finding !== undefined) throw new Error(reported(finding, again), { cause: causeOf(finding) });
  return program.operations.reduce((sum, operation) => sum + callsIn(operation), 0);
}

/** The number of calls of an operation, including nested ones. */
export function callsIn(operation: Operation): number {
  if (operation.do === "batch") return 1 + operation.steps.length;
  if (operation.do !== "transaction") return 1;
  return operation.body.reduce((sum, inner) => sum + callsIn(inner), 1);
}

/** The finding as text. */
export function reported(finding: Finding, again: string): string {
  const { program, failure, small, smallFailure } = finding;
  const story =
    smallFailure === undefined
      ? "It did not fail again, so that this may be more than is needed:"
      : `This is enough for it: ${smallFailure.what}`;
  return [
    `the program of seed ${program.seed} failed at its operation ${failure.at}: ${failure.what}`,
    `To run it again: ${again}`,
    story,
    print(small),
  ].join("\n");
}

function causeOf({ failure, smallFailure }: Finding): unknown {
  return (smallFailure ?? failure).cause;
}

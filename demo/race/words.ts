/** Figures as they are shown: three digits, since no race is more exact. */

const integers = new Intl.NumberFormat("en");

function digits(value: number): string {
  if (value >= 99.95) return integers.format(Number(value.toPrecision(3)));
  if (value >= 9.995) return value.toFixed(1);
  return value.toFixed(2);
}

/** A time in the unit in which it is a number of few digits. */
export function time(ns: number): { figure: string; unit: string } {
  const [unit, scale] =
    ns >= 0.9995e9
      ? ["s", 1e-9]
      : ns >= 0.9995e6
        ? ["ms", 1e-6]
        : ns >= 999.5
          ? ["µs", 1e-3]
          : ["ns", 1];
  return { figure: digits(ns * scale), unit };
}

export function timeInWords(ns: number): string {
  const { figure, unit } = time(ns);
  return `${figure} ${unit}`;
}

/** Within this, two times are the same: no race is more exact. */
export const SAME = 1.05;

/** How many times as long, compared with the reference. */
export function comparison(ns: number, reference: number): string {
  const ratio = ns / reference;
  if (ratio >= SAME) return `${factor(ratio)} as long`;
  if (1 / ratio >= SAME) return `${factor(1 / ratio)} as fast`;
  return "the same";
}

/** A ratio in words. */
export function factor(ratio: number): string {
  const figure =
    ratio >= 9.95 ? integers.format(Number(Math.round(ratio).toPrecision(3))) : ratio.toFixed(1);
  return `${figure} times`;
}

export function percent(part: number): string {
  return `${part < 0.0995 ? (part * 100).toFixed(1) : integers.format(Math.round(part * 100))} %`;
}

/** What is left, as one says it. */
export function left(ms: number): string {
  const seconds = Math.ceil(ms / 1_000);
  if (seconds <= 1) return "about a second left";
  if (seconds < 90) return `about ${seconds} seconds left`;
  return `about ${Math.ceil(seconds / 60)} minutes left`;
}

export function day(at: string): string {
  const date = new Date(at);
  return Number.isNaN(date.getTime())
    ? at
    : date.toLocaleDateString("en", { day: "numeric", month: "long", year: "numeric" });
}

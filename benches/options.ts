/** What `npm run bench` was asked for, as each section gets it. */
export interface BenchOptions {
  /** The repository. */
  root: string;
  /** Few samples, to see that it works. */
  quick: boolean;
  /** For the sizes: only these numbers of keys, and only these stores. */
  sizes?: readonly number[] | undefined;
  stores?: readonly string[] | undefined;
}

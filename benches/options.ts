/** The options of `npm run bench`, passed to each section. */
export interface BenchOptions {
  /** The repository's root. */
  root: string;
  /** Few samples, to see that it works. */
  quick: boolean;
  /** For the sizes: only these numbers of keys, and only these stores. */
  sizes?: readonly number[] | undefined;
  stores?: readonly string[] | undefined;
}

/** A file of this page, as it is bundled. */
export interface SourceFile {
  name: string;
  text: string;
}

/** A button that copies a text, and says so for a moment. */
function copyButton(text: string, name: string): HTMLButtonElement {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Copy";
  button.setAttribute("aria-label", `Copy ${name}`);
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Not allowed";
    }
    setTimeout(() => {
      button.textContent = "Copy";
    }, 1_500);
  });
  return button;
}

/** The code that a panel runs. Pass the text that `?raw` imports, so that it cannot differ from it. */
export function codeOf(files: readonly SourceFile[]): HTMLElement {
  const section = document.createElement("section");
  section.className = "code";
  const title = document.createElement("h2");
  title.textContent = "The code that runs here";
  section.append(title);
  for (const { name, text } of files) {
    const details = document.createElement("details");
    const summary = document.createElement("summary");
    summary.textContent = `${name}, ${text.trimEnd().split("\n").length} lines`;
    const block = document.createElement("pre");
    // So that the keyboard can scroll it.
    block.tabIndex = 0;
    block.setAttribute("role", "region");
    block.setAttribute("aria-label", name);
    const code = document.createElement("code");
    code.textContent = text;
    block.append(code);
    details.append(summary, copyButton(text, name), block);
    section.append(details);
  }
  return section;
}

//! Tables and links of Markdown documents, as far as the project's own documents need them.

/// The cells of all table rows whose first cell `keep` accepts.
#[must_use]
pub fn rows(text: &str, keep: impl Fn(&str) -> bool) -> Vec<Vec<String>> {
    text.lines()
        .filter_map(|line| line.strip_prefix('|')?.trim_end().strip_suffix('|'))
        .map(|line| line.split('|').map(|cell| cell.trim().to_owned()).collect::<Vec<_>>())
        .filter(|cells| cells.first().is_some_and(|first| keep(first)))
        .collect()
}

/// What stands in backticks.
#[must_use]
pub fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// The targets of all links; code blocks and quoted code are passed over.
#[must_use]
pub fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut in_block = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        }
        if in_block || line.starts_with("    ") {
            continue;
        }
        let plain: String = line.split('`').step_by(2).collect();
        for after in plain.split("](").skip(1) {
            found.extend(after.split(')').next().map(str::to_owned));
        }
    }
    found
}

/// A link's target as a path from the root; `None` for other sites and for places in the same file.
#[must_use]
pub fn target(document: &str, link: &str) -> Option<String> {
    let path = link.split('#').next().unwrap_or_default();
    if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
        return None;
    }
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_quotes_are_found() {
        let text = "| a | b |\n| --- | --- |\n| S1.2 | `x`, `y` |\n";
        let rows = rows(text, |first| first.starts_with('S'));
        assert_eq!(rows, [["S1.2", "`x`, `y`"]]);
        assert_eq!(quoted(&rows[0][1]), ["x", "y"]);
    }

    #[test]
    fn links_lead_from_their_document() {
        let text = "[a](../b.md#c) `[no](x)` [d](https://e)\n```\n[f](g)\n```\n";
        assert_eq!(links(text), ["../b.md#c", "https://e"]);
        assert_eq!(target("d/x.md", "../b.md#c").as_deref(), Some("b.md"));
        assert_eq!(target("d/x.md", "https://e"), None);
    }
}

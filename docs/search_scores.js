// Titles that hold the words of the query come first, and pages that answer questions before results and the project.
var Scorer = {
  score: ([docname, title, anchor, descr, score]) => {
    const query = new URLSearchParams(window.location.search).get("q") ?? "";
    const words = query.toLowerCase().split(/\s+/).filter((word) => word);
    const named = words.filter((word) => title.toLowerCase().includes(word)).length;
    const bonus = {how_to: 8, user_guide: 5, start: 5, quickstart: 5, tutorial: 3, auto_examples: 2};
    const malus = {results: 8, changelog: 8, architecture: 8, contributing: 8, releasing: 8, release_notes: 8};
    const folder = docname.split("/")[0];
    return score + (20 * named) / (words.length || 1) + (bonus[folder] ?? 0) - (malus[folder] ?? 0);
  },
  // The rest is as in Sphinx: bonuses for names, titles and words.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: {0: 15, 1: 5, 2: -5},
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};

// Pages that answer questions come before pages of results and of the project.
var Scorer = {
  score: ([docname, title, anchor, descr, score]) => {
    const bonus = {how_to: 20, user_guide: 10, start: 10, quickstart: 10, tutorial: 5, auto_examples: 3};
    const malus = {results: 10, changelog: 15, architecture: 15, contributing: 15, releasing: 15, release_notes: 15};
    const folder = docname.split("/")[0];
    return score + (bonus[folder] ?? 0) - (malus[folder] ?? 0);
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

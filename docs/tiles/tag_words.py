from sklearn.pipeline import make_pipeline

from sklearn_crf import TRWCRF
from sklearn_crf.display import PairwiseTablesDisplay
from sklearn_crf.preprocessing import SequenceVectorizer

words = [["Anna", "likes", "Oslo"], ["Rome", "is", "far"]]
tags = [["PER", "O", "LOC"], ["LOC", "O", "O"]]
X = [[{"word": word} for word in line] for line in words]
tagger = make_pipeline(SequenceVectorizer(), TRWCRF())
tagger.fit(X, tags)
labels = tagger.predict([[{"word": "Anna"}, {"word": "is"}]])
PairwiseTablesDisplay.from_estimator(tagger)

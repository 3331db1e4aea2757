import matplotlib.pyplot as plt
from sklearn.pipeline import make_pipeline

from sklearn_crf import TRWCRF
from sklearn_crf.preprocessing import SequenceVectorizer

words = [["Anna", "likes", "Oslo"], ["Rome", "is", "far"]]
tags = [["PER", "O", "LOC"], ["LOC", "O", "O"]]
X = [[{"word": word} for word in line] for line in words]
tagger = make_pipeline(SequenceVectorizer(), TRWCRF())
tagger.fit(X, tags)
new = ["Anna", "likes", "Rome"]
[found] = tagger.predict([[{"word": word} for word in new]])
plt.figure(figsize=(6, 1.6))
for x, tag in enumerate(found):
    plt.text(x / 3, 0.2, f"{new[x]}\n{tag}", fontsize=30)
plt.axis("off")

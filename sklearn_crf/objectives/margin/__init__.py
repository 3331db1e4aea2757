"""Max-margin objectives: hinge losses, their planes, and softmax-margin."""
